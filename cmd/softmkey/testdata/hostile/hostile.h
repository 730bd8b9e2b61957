/* What the hostile programs share. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include "pair.h"

#include <infiniband/mlx5dv.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

/* rnd returns a random number that the seed determines. */
uint32_t rnd(void);

/* some_pointer returns an address that may hold bytes, be unmapped, or be none. */
uint64_t some_pointer(void);

struct mode {
	const char *name;
	void (*do_round)(void); /* in a process of its own */
};

/* The modes of each file, which an entry without a name ends. */
extern const struct mode call_modes[], queue_modes[], process_modes[];

#endif
