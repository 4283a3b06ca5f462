/* libedit, with bracketed paste: a terminal that is asked to puts a paste between two marks, so that its
 * line ends are text and not the end of the message. */
#include "line_editor.h"

#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "base/memory.h"
#include "base/text_buffer.h"
#include "interrupt.h"

#define PASTE_ON    "\033[?2004h"
#define PASTE_OFF   "\033[?2004l"
#define PASTE_BEGIN "\033[200~"

static const wchar_t paste_end[] = L"\033[201~";
enum { N_PASTE_END = sizeof paste_end / sizeof *paste_end - 1, HISTORY_LINES = 500 };

struct line_editor {
    EditLine *el;
    History *history;
    const char *prompt;
    struct ob_text line;
};

static char *prompt_of(EditLine *el)
{
    struct line_editor *editor = NULL;
    el_get(el, EL_CLIENTDATA, &editor);
    static char copy[16]; /* libedit's type is not const, and it does not write */
    snprintf(copy, sizeof copy, "%s", editor->prompt);
    return copy;
}

/* What lies between the marks, with '\n' for every line end that a terminal may send. */
static wchar_t *read_paste(EditLine *el)
{
    void *text = NULL; /* wchar_t [n] */
    size_t n = 0, capacity = 0;
    wchar_t c;
    while (ob_grow(&text, &capacity, n + 2, sizeof c) && el_wgetc(el, &c) == 1) {
        wchar_t *s = text;
        bool second_half = c == L'\n' && n > 0 && s[n - 1] == L'\r';
        n -= second_half;
        s[n++] = c;
        s[n] = L'\0';
        if (n >= N_PASTE_END && wmemcmp(s + n - N_PASTE_END, paste_end, N_PASTE_END) == 0) {
            s[n - N_PASTE_END] = L'\0';
            for (wchar_t *r = s; (r = wcschr(r, L'\r'));)
                *r = L'\n';
            return text;
        }
    }
    free(text);
    return NULL;
}

static unsigned char take_paste(EditLine *el, int c)
{
    (void)c;
    wchar_t *text = read_paste(el);
    int inserted = text ? el_winsertstr(el, text) : -1;
    free(text);
    return inserted == 0 ? CC_REFRESH : CC_ERROR;
}

struct line_editor *line_editor_open(const char *prompt)
{
    HistEvent event;
    struct line_editor *editor = ob_calloc(1, sizeof *editor);
    if (!editor)
        return NULL;
    setlocale(LC_CTYPE, "C.UTF-8");
    editor->prompt = prompt;
    editor->el = el_init("onebit", stdin, stdout, stderr);
    editor->history = history_init();
    if (!editor->el || !editor->history) {
        line_editor_close(editor);
        return NULL;
    }
    history(editor->history, &event, H_SETSIZE, HISTORY_LINES);
    el_set(editor->el, EL_CLIENTDATA, editor);
    el_set(editor->el, EL_PROMPT, prompt_of);
    el_set(editor->el, EL_SIGNAL, 1); /* leave the terminal as it was when a signal ends us */
    el_set(editor->el, EL_HIST, history, editor->history);
    el_set(editor->el, EL_EDITOR, "emacs");
    el_set(editor->el, EL_ADDFN, "paste", "take a paste as text", take_paste);
    el_set(editor->el, EL_BIND, PASTE_BEGIN, "paste", NULL);
    el_source(editor->el, NULL); /* the user's own bindings, ~/.editrc */
    return editor;
}

void line_editor_close(struct line_editor *editor)
{
    if (!editor)
        return;
    if (editor->history)
        history_end(editor->history);
    if (editor->el)
        el_end(editor->el);
    ob_text_free(&editor->line);
    free(editor);
}

struct ob_str line_editor_read(struct line_editor *editor)
{
    HistEvent event;
    int n = 0;
    fputs(PASTE_ON, stdout);
    fflush(stdout);
    interrupt_farewell(PASTE_OFF);
    const char *line = el_gets(editor->el, &n);
    interrupt_farewell(NULL);
    fputs(PASTE_OFF, stdout);
    if (!line || n <= 0)
        return (struct ob_str){NULL, 0};
    if (n > 1)
        history(editor->history, &event, H_ENTER, line);
    editor->line.len = 0;
    ob_text_append(&editor->line, line, (size_t)n - (line[n - 1] == '\n'));
    return (struct ob_str){editor->line.failed ? NULL : editor->line.data, editor->line.len};
}
