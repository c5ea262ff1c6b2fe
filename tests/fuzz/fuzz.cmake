# Fuzzing for a few seconds: every committed input, and new ones from there (docs/fuzzing.md). Included by
# tests/CMakeLists.txt. In a build tree of its own, made by clang; the targets are in targets.cmake.
if(NOT SLUICE_SANITIZE)
    add_test(NAME fuzz COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/run.sh all 4 ${CMAKE_BINARY_DIR}/fuzz)
    # The timeout only ends a hang. Without clang it is skipped, which ctest says.
    set_tests_properties(fuzz PROPERTIES LABELS fuzz TIMEOUT 1200 SKIP_RETURN_CODE 77)
endif()
