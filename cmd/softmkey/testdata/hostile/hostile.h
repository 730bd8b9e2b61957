/* Declarations that the files of the program "hostile" share. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include "pair.h"

#include <infiniband/mlx5dv.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

/* rnd returns a random number that the seed determines. */
uint32_t rnd(void);

/* some_pointer returns an address: of random bytes, of read-only or unmapped memory, or no valid
 * address at all. */
uint64_t some_pointer(void);

struct mode {
	const char *name;
	void (*do_round)(void); /* runs in a process of its own */
};

/* The modes of each file. An entry without a name ends each list. */
extern const struct mode call_modes[], queue_modes[], process_modes[];

#endif
