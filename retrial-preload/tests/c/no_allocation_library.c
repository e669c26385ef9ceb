/* The library of no_allocation.c. */
void loading(void);

__attribute__((constructor)) static void construct(void) { loading(); }
