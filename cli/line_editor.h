/* Lines typed at a terminal: editing, history, and a paste of many lines as one text.
 *
 * Everything is UTF-8, whatever the locale says, since that is what models read. One editor per
 * program: the terminal is one. */
#ifndef CLI_LINE_EDITOR_H
#define CLI_LINE_EDITOR_H

#include "base/str.h"

struct line_editor;

/* `prompt` is kept. NULL when there is no memory or the terminal cannot be used. */
struct line_editor *line_editor_open(const char *prompt);
void line_editor_close(struct line_editor *editor); /* NULL is allowed */

/* The next line without its end, NUL-terminated, valid until the next call; ptr is NULL at the end of
 * the input, or without memory. A paste may hold line ends. While it waits signals act as everywhere. */
struct ob_str line_editor_read(struct line_editor *editor);

#endif
