/* hostile MODE SEED ROUNDS misuses the device in the way that MODE names. Each round is a
 * process of its own, and may end with a failure or by a signal. A round that does not end
 * within a minute is an error, because then a call has not been answered. */
#include "hostile.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static uint64_t state;

uint32_t rnd(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return state >> 33;
}

uint64_t some_pointer(void)
{
	static uint8_t *room;
	if (!room) {
		room = mmap(NULL, 3 * 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		must(room != MAP_FAILED, "no memory");
		munmap(room + 65536, 65536);
		mprotect(room + 2 * 65536, 65536, PROT_READ);
	}
	switch (rnd() % 8) {
	case 0: return 0;
	case 1: return ~0ull - rnd() % 4096;
	case 2: return (uintptr_t)room + 65536 - rnd() % 64; /* unmapped after a few bytes */
	case 3: return (uintptr_t)room + 2 * 65536 + rnd() % 65536; /* read only */
	case 4: return (uint64_t)rnd() << 32 | rnd();
	default:
		for (int i = 0; i < 256; i++)
			room[rnd() % 4096] = rnd();
		return (uintptr_t)room + rnd() % 4096;
	}
}

static const struct mode *find(const char *name)
{
	const struct mode *files[] = { call_modes, queue_modes, process_modes };
	for (int i = 0; i < 3; i++)
		for (const struct mode *m = files[i]; m->name; m++)
			if (!strcmp(m->name, name))
				return m;
	die("no mode %s", name);
}

int main(int argc, char **argv)
{
	must(argc == 4, "usage: hostile MODE SEED ROUNDS");
	const struct mode *m = find(argv[1]);
	const long seed = atol(argv[2]), rounds = atol(argv[3]);
	long well = 0, failed = 0, killed = 0;
	for (long round = 0; round < rounds; round++) {
		pid_t pid = fork();
		must(pid >= 0, "fork");
		if (pid == 0) {
			state = (uint64_t)seed << 32 | round;
			alarm(60);
			freopen("/dev/null", "w", stderr); /* drops the error messages of libraries */
			m->do_round();
			_exit(0);
		}
		int status;
		must(waitpid(pid, &status, 0) == pid, "waitpid");
		must(!WIFSIGNALED(status) || WTERMSIG(status) != SIGALRM, "%s: round %ld of seed %ld does not end", argv[1], round, seed);
		WIFSIGNALED(status) ? killed++ : WEXITSTATUS(status) ? failed++ : well++;
	}
	printf("%s: %ld rounds ended well, %ld with a failure, %ld by a signal\n", argv[1], well, failed, killed);
	return 0;
}
