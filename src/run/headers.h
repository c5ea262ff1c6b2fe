/*
 * headers.h - the expert index of a model whose headers alone were read.
 */
#ifndef SLUICE_RUN_HEADERS_H
#define SLUICE_RUN_HEADERS_H

#include "run/info.h"
#include "cache/expert_index.h"

/*
 * Enter every expert tensor into *b, which is empty, with the alignment of the file systems that the files are on.
 * `info` is of `g`, by sluice_info_collect. On failure (SLUICE_ERR_IO, SLUICE_ERR_FORMAT, SLUICE_ERR_MEMORY) too *b is
 * to be freed by index_free.
 */
int sluice_bank_of_headers(struct expert_index *b, const struct sluice_gguf *g, const struct sluice_info *info,
                           struct sluice_error *err);

#endif
