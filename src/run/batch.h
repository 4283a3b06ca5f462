/* Several sessions in one run: the weights are read once for all of them. */
#ifndef OB_RUN_BATCH_H
#define OB_RUN_BATCH_H

#include "run/model.h"

/* Append ids[i] to sessions[i], i < n, all of one model and each there once; logits of each as after
 * ob_session_append. The results are the bytes of n appends. Whole or not at all; OB_CONTEXT_FULL
 * when one has no room. n up to the model's rows and wanted rows of a run, else OB_INVALID_ARGUMENT.
 * The caller owns all n sessions while it runs. */
ob_status ob_run_batch(struct ob_session *const *sessions, const int32_t *ids, size_t n,
                       struct ob_error *err);

/* Most sessions of one ob_run_batch. */
size_t ob_run_batch_most(const struct ob_model *model);

#endif
