/* What the two files of filters share. */
#ifndef OB_TEXT_TEMPLATE_FILTERS_H
#define OB_TEXT_TEMPLATE_FILTERS_H

#include "text/template_eval.h"

extern const struct ob_filter ob_seq_filters[];
extern const size_t ob_n_seq_filters;

#endif
