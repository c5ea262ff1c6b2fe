# Endurance: three programs on one disk (run.sh). Its short form, of 2,000 tokens; the long one is run by hand
# (docs/endurance.md). Included by tests/CMakeLists.txt.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/endurance)
set(endurance_sanitized 0)
if(SLUICE_SANITIZE)
    set(endurance_sanitized 1)
endif()
# Builds with AddressSanitizer leave out stock programs and preloaded libraries, which do not carry its run-time library.
# Not with ThreadSanitizer: threads that spin at ggml's own barriers crawl when several programs compute, and the command
# does not start under it (its own mmap is called before the sanitizer is ready). Races are the soak's to find there.
if(SLUICE_SANITIZE STREQUAL "thread")
    return()
endif()
add_test(NAME endurance COMMAND ${CMAKE_CURRENT_LIST_DIR}/run.sh 2000)
# The timeout only ends a hang.
set_tests_properties(endurance PROPERTIES LABELS soak TIMEOUT 1800 PROCESSORS 2
    ENVIRONMENT "BIN=${CMAKE_BINARY_DIR}/bin;LLAMA_BIN=${SLUICE_LLAMA_BIN};WORK=${CMAKE_BINARY_DIR}/endurance;SANITIZED=${endurance_sanitized}")
