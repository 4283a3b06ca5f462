/* complete MODEL PROMPT: go on with a text, greedily. Build it against an installed onebit:
 *     cc complete.c -o complete $(pkg-config --cflags --libs onebit) */
#include <stdio.h>
#include <string.h>

#include <onebit.h>

enum { MOST_PROMPT = 1024, MOST_ANSWER = 48 };

static int print_delta(void *context, const struct ob_delta *delta)
{
    (void)context;
    return fwrite(delta->text, 1, delta->n_bytes, stdout) != delta->n_bytes; /* stop if it fails */
}

int main(int argc, char **argv)
{
    struct ob_model *model = NULL;
    struct ob_session *session = NULL;
    struct ob_generate_options options = {.max_tokens = MOST_ANSWER};
    struct ob_generated result;
    struct ob_error err;
    int32_t ids[MOST_PROMPT];
    size_t n_ids;
    if (argc != 3) {
        fprintf(stderr, "usage: complete MODEL PROMPT\n");
        return 2;
    }
    ob_status status = ob_model_open(argv[1], NULL, &model, &err);
    if (status == OB_OK)
        status = ob_session_open(model, NULL, &session, &err);
    if (status == OB_OK)
        status = ob_tokenize(model, argv[2], strlen(argv[2]), 0, ids, MOST_PROMPT, &n_ids, &err);
    if (status == OB_OK)
        status = ob_session_append(session, ids, n_ids, &err);
    if (status == OB_OK)
        status = ob_generate(session, &options, print_delta, NULL, &result, &err);
    ob_session_close(session);
    ob_model_close(model);
    if (status != OB_OK)
        fprintf(stderr, "complete: %s\n", err.message);
    putchar('\n');
    return status == OB_OK && fflush(stdout) == 0 ? 0 : 1;
}
