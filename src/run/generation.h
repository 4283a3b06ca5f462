/* An answer in the making, a token at a time: what ob_generate loops over, for callers that read the
 * tokens of many sessions in one run (batch.h). */
#ifndef OB_RUN_GENERATION_H
#define OB_RUN_GENERATION_H

#include "run/session.h"

struct ob_generation;

/* Begin as ob_generate does; nothing is chosen yet. `options` and all it points to are copied. */
ob_status ob_generation_create(struct ob_session *session,
                               const struct ob_generate_options *options, ob_delta_fn fn,
                               void *context, struct ob_generation **out, struct ob_error *err);
void ob_generation_destroy(struct ob_generation *generation); /* NULL is allowed */

/* Choose a token by the session's logits and deliver it. *over says that the answer ended with it;
 * otherwise the caller reads *id into the session, alone or in a batch, before the next step. */
ob_status ob_generation_step(struct ob_generation *generation, int32_t *id, bool *over,
                             struct ob_error *err);

/* n tokens that the caller puts behind the last one count as generated. */
void ob_generation_add(struct ob_generation *generation, size_t n);

/* So far; `finish` is meaningful once the answer is over. */
struct ob_generated ob_generation_result(const struct ob_generation *generation);

#endif
