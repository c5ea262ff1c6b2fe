# What `sluice --version` says of the llama.cpp underneath: SLUICE_LLAMA_COMMIT, "" when its source is no git checkout, and
# SLUICE_LLAMA_HOW, how it was built. Asked of git here and not of scripts/llama.sh, so that it is right for any checkout.
set(SLUICE_LLAMA_COMMIT "")
find_program(GIT_PROGRAM git)
if(GIT_PROGRAM AND EXISTS ${SLUICE_LLAMA_SOURCE_DIR}/.git) # a directory inside another repository has none of its own
    execute_process(COMMAND ${GIT_PROGRAM} -C ${SLUICE_LLAMA_SOURCE_DIR} rev-parse --short=12 HEAD
        OUTPUT_VARIABLE SLUICE_LLAMA_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(SLUICE_LLAMA_HOW ${SLUICE_LLAMA_KIND})
if(SLUICE_LLAMA_SYSTEM)
    set(SLUICE_LLAMA_HOW installed)
endif()
