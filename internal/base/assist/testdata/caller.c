/* A program, or a plugin, that calls libibverbs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

void **ibv_open_device(void *), **mlx5dv_open_device(void *, void *);
int ibv_close_device(void *), ibv_modify_qp(void *, void *, int);

static void report(void **c, int closed, int modified)
{
	const char *error = dlerror();
	printf("%s%ld opens, %d closes, %d modifies%s\n", NAME, c ? (long)*c : -1, closed, modified, error ? error : "");
}

void **opens(void *device) { return ibv_open_device(device); }
int closes(void *c) { return ibv_close_device(c); }

int use(void)
{
	void **c = ibv_open_device("");
	int modified = ibv_modify_qp(0, 0, 0);
	report(c, LEAVE ? 0 : ibv_close_device(c), modified);
	report(mlx5dv_open_device("", 0), 0, modified);
	return 0;
}

int main(void) { return use(); }
