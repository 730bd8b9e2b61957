// SPDX-License-Identifier: Apache-2.0
//
// nvmepass DISK [STATUS]: writes and reads blocks of an NVMe disk with T10-PI by pass-through commands,
// whose tuples the block layer neither makes nor checks. A part of a block or of its tuple that
// is damaged in memory before a write must be found, and the disk must keep its old blocks.
// Prints a line for each command that ended as it should. STATUS is that of a read whose first
// reference tag is not that of its first block: Linux's target checks the blocks, whose tags are
// others, and a target may also refuse the command.

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/nvme_ioctl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

enum { BLOCKS = 8, FIRST = 64, TUPLE = 8, OP_WRITE = 1, OP_READ = 2, CHECK_REF = 1 << 10, CHECK_GUARD = 1 << 12 };
enum { GUARD_CHECK = 0x282, REF_CHECK = 0x284 }; // statuses of the NVMe base specification
static int disk, block;

struct io {
	uint8_t data[BLOCKS * 4096], tuples[BLOCKS * TUPLE];
};
static struct io good, buf;

// guard is the CRC of T10-DIF, one bit at a time.
static uint16_t guard(const uint8_t *p, int n)
{
	uint16_t crc = 0;
	for (int i = 0; i < n; i++) {
		crc ^= p[i] << 8;
		for (int bit = 0; bit < 8; bit++)
			crc = crc << 1 ^ (crc & 0x8000 ? 0x8bb7 : 0);
	}
	return crc;
}

static void fill(struct io *io, uint32_t seed)
{
	for (int i = 0; i < BLOCKS; i++) {
		uint8_t *data = io->data + i * block, *tuple = io->tuples + i * TUPLE;
		for (int j = 0; j < block; j++)
			data[j] = (seed = seed * 1103515245 + 12345) >> 16;
		uint16_t crc = htobe16(guard(data, block)), app = htobe16(0x5a17);
		uint32_t ref = htobe32(FIRST + i);
		memcpy(tuple, &crc, 2);
		memcpy(tuple + 2, &app, 2);
		memcpy(tuple + 4, &ref, 4);
	}
}

static void command(const char *what, int op, uint32_t ref, int want)
{
	struct nvme_passthru_cmd c = {
		.opcode = op, .nsid = 1, .addr = (uintptr_t)buf.data, .data_len = BLOCKS * block, .metadata = (uintptr_t)buf.tuples, .metadata_len = sizeof buf.tuples,
		.cdw10 = FIRST, .cdw12 = (BLOCKS - 1) | (CHECK_GUARD | CHECK_REF) << 16, .cdw14 = ref,
	};
	int status = ioctl(disk, NVME_IOCTL_IO_CMD, &c);
	if (status < 0 || (status & 0x7ff) != want) {
		printf("%s: status %#x (%s), want %#x\n", what, status, status < 0 ? strerror(errno) : "NVMe", want);
		exit(1);
	}
	printf("%s: status %#x\n", what, status & 0x7ff);
}

// same reads the blocks, and compares them with the good ones.
static void same(const char *what)
{
	memset(&buf, 0, sizeof buf);
	command(what, OP_READ, FIRST, 0);
	if (memcmp(buf.data, good.data, BLOCKS * block) || memcmp(buf.tuples, good.tuples, sizeof good.tuples)) {
		printf("%s: they are others\n", what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	disk = argc == 2 || argc == 3 ? open(argv[1], O_RDWR) : -1;
	if (disk < 0 || ioctl(disk, BLKSSZGET, &block) || block > 4096) {
		perror("nvmepass");
		return 1;
	}
	fill(&good, 1);
	buf = good;
	command("write", OP_WRITE, FIRST, 0);
	same("read");
	struct {
		const char *what;
		uint8_t *at;
		int status;
	} damages[] = {
		{ "data damaged in memory", buf.data + 100, GUARD_CHECK },
		{ "data of the last block damaged in memory", buf.data + BLOCKS * block - 5, GUARD_CHECK },
		{ "guard damaged in memory", buf.tuples, GUARD_CHECK },
		{ "reference tag damaged in memory", buf.tuples + 7, REF_CHECK },
	};
	for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
		fill(&buf, 2);
		*damages[i].at ^= 0x10;
		command(damages[i].what, OP_WRITE, FIRST, damages[i].status);
		same("the old blocks");
	}
	command("read of other reference tags", OP_READ, FIRST + 1, argc == 3 ? strtol(argv[2], NULL, 0) : REF_CHECK);
	return 0;
}
