/*
 * talk sends 64 messages of 16 KiB on a socket of a family whose kernel module may use RDMA, gets them back, and
 * compares them.
 *
 * talk smc|rds listen ADDRESS          sends back what comes
 * talk smc|rds connect ADDRESS PEER
 */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef AF_SMC
#define AF_SMC 43
#endif
#ifndef AF_RDS
#define AF_RDS 21
#endif

enum { MESSAGES = 64, SIZE = 16 << 10, PORT = 7400 };

static char sent[SIZE], got[SIZE];

static struct sockaddr_in address(const char *text, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	if (inet_pton(AF_INET, text, &a.sin_addr) != 1)
		errx(1, "%s: no address", text);
	return a;
}

static void fill(int n)
{
	for (int i = 0; i < SIZE; i++)
		sent[i] = (char)(n * 131 + i * 7 + i / 251);
}

static void compare(int n)
{
	if (memcmp(sent, got, SIZE))
		errx(1, "message %d came back changed", n);
}

static void all(int fd, int out, char *b)
{
	for (size_t done = 0; done < SIZE;) {
		ssize_t n = out ? write(fd, b + done, SIZE - done) : read(fd, b + done, SIZE - done);
		if (n <= 0)
			err(1, "%s after %zu bytes", out ? "write" : "read", done);
		done += n;
	}
}

static void smc(int listens, const char *local, const char *peer)
{
	int fd = socket(AF_SMC, SOCK_STREAM, 0), one = 1;
	struct sockaddr_in a = address(listens ? local : peer, PORT);
	if (fd < 0)
		err(1, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (!listens) {
		if (connect(fd, (struct sockaddr *)&a, sizeof a))
			err(1, "connect");
	} else {
		int l = fd;
		if (bind(l, (struct sockaddr *)&a, sizeof a) || listen(l, 1) || (fd = accept(l, NULL, NULL)) < 0)
			err(1, "listen");
	}
	for (int i = 0; i < MESSAGES; i++) {
		if (listens) {
			all(fd, 0, got);
			all(fd, 1, got);
			continue;
		}
		fill(i);
		all(fd, 1, sent);
		all(fd, 0, got);
		compare(i);
	}
}

static void rds(int listens, const char *local, const char *peer)
{
	int fd = socket(AF_RDS, SOCK_SEQPACKET, 0);
	struct sockaddr_in a = address(local, listens ? PORT : PORT + 1), to = a;
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a))
		err(1, "bind");
	if (!listens)
		to = address(peer, PORT);
	for (int i = 0; i < MESSAGES; i++) {
		socklen_t n = sizeof to;
		fill(i);
		if (!listens && sendto(fd, sent, SIZE, 0, (struct sockaddr *)&to, sizeof to) != SIZE)
			err(1, "sendto");
		if (recvfrom(fd, got, SIZE, 0, (struct sockaddr *)&to, &n) != SIZE)
			err(1, "recvfrom");
		if (!listens)
			compare(i);
		else if (sendto(fd, got, SIZE, 0, (struct sockaddr *)&to, sizeof to) != SIZE)
			err(1, "sendto");
	}
	if (listens)
		sleep(2); /* the last message is on its way */
}

int main(int argc, char **argv)
{
	if (argc < 4 || (strcmp(argv[2], "listen") && argc < 5))
		errx(2, "usage: talk smc|rds listen ADDRESS | connect ADDRESS PEER");
	alarm(120);
	int listens = !strcmp(argv[2], "listen");
	(strcmp(argv[1], "smc") ? rds : smc)(listens, argv[3], argv[4]);
	printf("%d messages of %d bytes\n", MESSAGES, SIZE);
	return 0;
}
