/* Load the backends of a llama.cpp that has none linked in; see backends.c. */
#ifndef SLUICE_TESTS_BACKENDS_H
#define SLUICE_TESTS_BACKENDS_H

/* All backends that ggml finds, and the one that GGML_BACKEND_PATH names, whatever kind of build this is. Once per
 * process, before llama_backend_init. */
void load_backends(void);

#endif
