/* A hundred threads begin librdmacm one after the other, STEP microseconds apart: half of them listen, the
 * others resolve an address and a route. librdmacm asks for AF_IB without a lock, so that some threads send
 * the commands that have it.
 * starts ADDRESS STEP */
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

static const char *address;
static int step;

static void expect(struct rdma_event_channel *ch, enum rdma_cm_event_type kind)
{
	struct rdma_cm_event *e;

	must(!rdma_get_cm_event(ch, &e), "event: %s", strerror(errno));
	must(e->event == kind, "%s, status %d", rdma_event_str(e->event), e->status);
	rdma_ack_cm_event(e);
}

static void *start(void *arg)
{
	long n = (long)arg;
	struct sockaddr_in a = {.sin_family = AF_INET};
	struct rdma_cm_id *id;

	inet_pton(AF_INET, address, &a.sin_addr);
	usleep(n * step);
	struct rdma_event_channel *ch = rdma_create_event_channel();

	must(ch && !rdma_create_id(ch, &id, NULL, n & 2 ? RDMA_PS_TCP : RDMA_PS_UDP), "create: %s", strerror(errno));
	if (n & 1) {
		must(!rdma_bind_addr(id, (void *)&a), "bind: %s", strerror(errno));
		must(!rdma_listen(id, 1), "listen: %s", strerror(errno));
	} else {
		a.sin_port = htons(4000 + n);
		must(!rdma_resolve_addr(id, NULL, (void *)&a, 2000), "resolve: %s", strerror(errno));
		expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED);
		must(!rdma_resolve_route(id, 2000), "route: %s", strerror(errno));
		expect(ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
		must(id->route.num_paths == 1, "%d paths", id->route.num_paths);
	}
	must(id->verbs, "no device");
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[100];

	must(argc == 3, "usage: starts ADDRESS STEP");
	address = argv[1], step = atoi(argv[2]);
	for (long n = 0; n < 100; n++)
		pthread_create(&threads[n], NULL, start, (void *)n);
	for (int n = 0; n < 100; n++)
		pthread_join(threads[n], NULL);
	return 0;
}
