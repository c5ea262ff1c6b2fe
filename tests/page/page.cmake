# The window's page in a real browser: against a made-up program, and with `sluice serve` and the demo model.
if(NOT SLUICE_SANITIZE)
    add_test(NAME page-mock COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/run.sh mock ${CMAKE_BINARY_DIR}/page)
    set_tests_properties(page-mock PROPERTIES TIMEOUT 900 PROCESSORS 2)
endif()

# live.test.mjs says why the context's length is overridden.
if(EXISTS ${CMAKE_SOURCE_DIR}/src/cli/serve.c AND EXISTS ${CMAKE_SOURCE_DIR}/models/demo.gguf AND NOT SLUICE_SANITIZE)
    set(page_command "exec '$<TARGET_FILE:sluice>' serve -m '${CMAKE_SOURCE_DIR}/models/demo.gguf' --cache 3MiB --ctx 8192"
        "--server '${SLUICE_LLAMA_BIN}/llama-server' --port @CHAT@ --window 127.0.0.1:@WINDOW@"
        "-- --override-kv qwen3moe.context_length=int:8192")
    string(JOIN " " page_command ${page_command})
    add_test(NAME page-live COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/run.sh live ${CMAKE_BINARY_DIR}/page)
    set_tests_properties(page-live PROPERTIES TIMEOUT 600 PROCESSORS 2 ENVIRONMENT "SLUICE_PAGE_COMMAND=${page_command}")
endif()
