# Endurance: three programs on one disk (run.sh). Its short form, of 2,000 tokens; the long one is run by hand
# (docs/endurance.md). Included by tests/CMakeLists.txt.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/endurance)
set(endurance_sanitized 0)
if(SLUICE_SANITIZE)
    set(endurance_sanitized 1)
endif()
add_test(NAME endurance COMMAND ${CMAKE_CURRENT_LIST_DIR}/run.sh 2000)
# The timeout only ends a hang. Builds with sanitizers leave out stock programs and preloaded libraries, which do not carry
# their run-time library.
set_tests_properties(endurance PROPERTIES LABELS soak TIMEOUT 1800 PROCESSORS 2
    ENVIRONMENT "BIN=${CMAKE_BINARY_DIR}/bin;LLAMA_BIN=${SLUICE_LLAMA_BIN};WORK=${CMAKE_BINARY_DIR}/endurance;SANITIZED=${endurance_sanitized}")
