# embed.cmake - a file as a C array: cmake -DIN=FILE -DOUT=FILE.c -DNAME=symbol -P embed.cmake
# Defines `const unsigned char NAME[]` and `const size_t NAME_n`. Needs no program besides cmake.
file(READ "${IN}" hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR n "${digits} / 2")
if(n EQUAL 0)
    message(FATAL_ERROR "${IN} is empty")
endif()
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(....................................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE "${OUT}" "/* Made from ${IN} by cmake/embed.cmake. */
#include <stddef.h>

extern const unsigned char ${NAME}[];
extern const size_t ${NAME}_n;

const unsigned char ${NAME}[] = {
${bytes}
};
const size_t ${NAME}_n = ${n};
")
