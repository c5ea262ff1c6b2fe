# A real client against `sluice serve`: the npm package openai (scripts/npm-package.sh). Included by tests/CMakeLists.txt.
# Environment: SLUICE (the command), LLAMA_SERVER, MODEL (made by the fixture cli-model), OPENAI (the package's directory).
if(NOT SLUICE_SANITIZE) # a library with a sanitizer in it cannot be preloaded into llama-server
    add_test(NAME serve-openai COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/openai.sh)
    # The timeout only ends a hang.
    set_tests_properties(serve-openai PROPERTIES LABELS server PROCESSORS 2 TIMEOUT 900 FIXTURES_REQUIRED cli-model
        ENVIRONMENT "BIN=${CMAKE_BINARY_DIR}/bin;LLAMA_BIN=${SLUICE_LLAMA_BIN};MODEL=${CMAKE_BINARY_DIR}/cli/model.gguf;OMP_WAIT_POLICY=passive")
endif()
