/* A library in front of libibverbs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

void *ibv_open_device(void *device)
{
	void *(*f)(void *) = dlsym(RTLD_NEXT, "ibv_open_device");
	puts("the wrapper opens");
	return f ? f(device) : 0;
}
