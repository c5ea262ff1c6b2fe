/* page.c - the one place that asks how large a page is. See page.h. */
#include "cache/page.h"

#include <assert.h>
#include <unistd.h>

size_t stream_page_size(void) {
    const long size = sysconf(_SC_PAGESIZE);
    assert(size > 0 && (size & (size - 1)) == 0); /* POSIX has it always */
    return (size_t)size;
}

uintptr_t stream_page_down(uintptr_t x) {
    return x & ~((uintptr_t)stream_page_size() - 1);
}

uintptr_t stream_page_up(uintptr_t x) {
    return stream_page_down(x + stream_page_size() - 1);
}
