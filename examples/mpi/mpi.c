/*
 * A ping-pong between all neighbours and reductions over all ranks, with every byte
 * and every sum checked. It is an ordinary MPI program; with
 *
 *     mpicc -o mpi mpi.c
 *     softmkey run -- mpirun -n 2 --mca pml ucx -x UCX_TLS=rc,self ./mpi
 *
 * its messages go over softmkey's device.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;

static void fail(const char *what, size_t size, size_t at)
{
	fprintf(stderr, "rank %d: %s of %zu: element %zu is wrong\n", rank, what, size, at);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint8_t pattern(int from, size_t size, size_t i)
{
	return (uint8_t)(i * 2654435761u >> 13 ^ size ^ (unsigned)from * 91);
}

/* Every rank sends a message around the ring: to its right, from its left. */
static void ring(uint8_t *out, uint8_t *in, size_t size)
{
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;

	for (size_t i = 0; i < size; i++)
		out[i] = pattern(rank, size, i);
	MPI_Sendrecv(out, size, MPI_BYTE, right, 1, in, size, MPI_BYTE, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (size_t i = 0; i < size; i++)
		if (in[i] != pattern(left, size, i))
			fail("ring", size, i);
}

/* Even ranks send to their neighbour, which returns the message with every bit inverted. */
static void pingpong(uint8_t *out, uint8_t *in, size_t size)
{
	int peer = rank ^ 1;

	if (peer >= ranks)
		return;
	if (rank % 2 == 0) {
		for (size_t i = 0; i < size; i++)
			out[i] = pattern(rank, size, i);
		MPI_Send(out, size, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
		MPI_Recv(in, size, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (size_t i = 0; i < size; i++)
			if ((in[i] ^ pattern(rank, size, i)) != 0xff)
				fail("ping-pong", size, i);
	} else {
		MPI_Recv(in, size, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (size_t i = 0; i < size; i++)
			out[i] = ~in[i];
		MPI_Send(out, size, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
	}
}

static void allreduce(uint64_t *out, uint64_t *in, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (uint64_t)(rank + 1) * (i + 3);
	MPI_Allreduce(out, in, n, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	uint64_t ranksSum = (uint64_t)ranks * (ranks + 1) / 2;
	for (size_t i = 0; i < n; i++)
		if (in[i] != ranksSum * (i + 3))
			fail("allreduce", n, i);
}

int main(int argc, char **argv)
{
	const size_t most = 1 << 20;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	void *out = malloc(most), *in = malloc(most);
	if (!out || !in)
		MPI_Abort(MPI_COMM_WORLD, 1);
	size_t bytes = 0;
	for (size_t size = 1; size <= most; size = size * 4 + 1) {
		ring(out, in, size);
		pingpong(out, in, size);
		bytes += 3 * size;
	}
	for (size_t n = 1; n <= most / 8; n *= 8)
		allreduce(out, in, n);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks: ring, ping-pong and allreduce are right\n", ranks);
	free(out);
	free(in);
	MPI_Finalize();
	return 0;
}
