/* Ctrl-C and its like end the program at once, with status 128 + signal, and leave no temporary file:
 * there is never more to undo than the one file that is being written. */
#ifndef CLI_INTERRUPT_H
#define CLI_INTERRUPT_H

/* Catch SIGINT, SIGTERM and SIGHUP; ignore SIGPIPE, so that a closed pipe is a write error. */
void interrupt_install(void);

/* Between these two a signal waits: bracket the creation of a file and the call below. */
void interrupt_hold(void);
void interrupt_release(void);

/* Whether a signal waits. Work that holds signals asks between its steps and comes to an end. */
int interrupt_pending(void);

/* What a signal writes to the terminal before the end, to switch something off; NULL for nothing. The
 * text must be constant. */
void interrupt_farewell(const char *text);

/* The file a signal removes; NULL for none. Call it with signals on hold. */
void interrupt_remove(const char *path);

#endif
