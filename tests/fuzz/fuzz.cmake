# Fuzzing: every committed input, and new ones from there for a second or for ten (docs/fuzzing.md). Included by
# tests/CMakeLists.txt. In a build tree of its own, made by clang; the targets are in targets.cmake.
if(NOT SLUICE_SANITIZE)
    add_test(NAME fuzz COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/run.sh all 1 ${CMAKE_BINARY_DIR}/fuzz)
    add_test(NAME fuzz-all COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/run.sh all 10 ${CMAKE_BINARY_DIR}/fuzz)
    # The timeout only ends a hang. Without clang they are skipped, which ctest says.
    set_tests_properties(fuzz fuzz-all PROPERTIES LABELS fuzz TIMEOUT 1800 SKIP_RETURN_CODE 77 RESOURCE_LOCK fuzz)
endif()
