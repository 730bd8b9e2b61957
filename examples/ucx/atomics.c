// atomics compares UCX's atomic operations on memory of a peer with a model: add, and, or and xor with
// and without the old value, swap, and compare and swap, on words of 4 and 8 bytes.
//
//	gcc -o atomics atomics.c -lucp -lucs && UCX_TLS=rc_x softmkey run -- ./atomics
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

enum { WORDS = 32, COUNT = 1000 };

static ucp_worker_h target, initiator;

static void check(ucs_status_t st, const char *what)
{
	if (st != UCS_OK) {
		fprintf(stderr, "%s: %s\n", what, ucs_status_string(st));
		exit(1);
	}
}

static void wait_for(ucs_status_ptr_t req, const char *what)
{
	if (!UCS_PTR_IS_PTR(req)) {
		check(UCS_PTR_STATUS(req), what);
		return;
	}
	while (ucp_request_check_status(req) == UCS_INPROGRESS) {
		ucp_worker_progress(initiator);
		ucp_worker_progress(target);
	}
	check(ucp_request_check_status(req), what);
	ucp_request_free(req);
}

static uint64_t random64(void)
{
	static uint64_t x = 88172645463325252ull;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

static uint64_t cut(uint64_t v, int size) { return size == 4 ? (uint32_t)v : v; }

static uint64_t load(const void *p, int size)
{
	uint32_t small;
	uint64_t large;
	memcpy(&small, p, 4);
	if (size == 4)
		return small;
	memcpy(&large, p, 8);
	return large;
}

static void store(void *p, int size, uint64_t v)
{
	uint32_t small = v;
	memcpy(p, size == 4 ? (void *)&small : (void *)&v, size);
}

static uint64_t apply(ucp_atomic_op_t op, uint64_t old, uint64_t a, uint64_t b)
{
	switch (op) {
	case UCP_ATOMIC_OP_ADD:
		return old + a;
	case UCP_ATOMIC_OP_AND:
		return old & a;
	case UCP_ATOMIC_OP_OR:
		return old | a;
	case UCP_ATOMIC_OP_XOR:
		return old ^ a;
	case UCP_ATOMIC_OP_SWAP:
		return a;
	default:
		return old == a ? b : old;
	}
}

int main(void)
{
	static const ucp_atomic_op_t ops[] = { UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_AND, UCP_ATOMIC_OP_OR, UCP_ATOMIC_OP_XOR, UCP_ATOMIC_OP_SWAP, UCP_ATOMIC_OP_CSWAP };
	static const char *names[] = { "add", "and", "or", "xor", "swap", "cswap" };
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 };
	ucp_worker_params_t wparams = { .field_mask = 0 };
	ucp_mem_map_params_t mparams = { .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS, .length = 8 * WORDS, .flags = UCP_MEM_MAP_ALLOCATE };
	ucp_mem_attr_t mattr = { .field_mask = UCP_MEM_ATTR_FIELD_ADDRESS };
	ucp_ep_params_t eparams = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	ucp_request_param_t none = { 0 };
	ucp_config_t *config;
	ucp_context_h ctx;
	ucp_address_t *address;
	size_t length;
	ucp_ep_h ep;
	ucp_mem_h mem;
	ucp_rkey_h rkey;
	void *packed;
	uint64_t model[WORDS], seen[6][2] = { 0 };

	check(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
	check(ucp_config_modify(config, "ATOMIC_MODE", "device"), "ATOMIC_MODE");
	check(ucp_init(&params, config, &ctx), "ucp_init");
	ucp_config_release(config);
	check(ucp_worker_create(ctx, &wparams, &target), "ucp_worker_create");
	check(ucp_worker_create(ctx, &wparams, &initiator), "ucp_worker_create");
	check(ucp_mem_map(ctx, &mparams, &mem), "ucp_mem_map");
	check(ucp_mem_query(mem, &mattr), "ucp_mem_query");
	check(ucp_rkey_pack(ctx, mem, &packed, &length), "ucp_rkey_pack");
	check(ucp_worker_get_address(target, &address, &length), "ucp_worker_get_address");
	eparams.address = address;
	check(ucp_ep_create(initiator, &eparams, &ep), "ucp_ep_create");
	check(ucp_ep_rkey_unpack(ep, packed, &rkey), "ucp_ep_rkey_unpack");

	char *memory = mattr.address;
	for (int i = 0; i < WORDS; i++)
		model[i] = random64();
	memcpy(memory, model, sizeof(model));
	for (int i = 0; i < COUNT; i++) {
		int kind = random64() % 6, size = random64() % 2 ? 4 : 8, at = random64() % (8 * WORDS / size) * size;
		int fetch = kind >= 4 || random64() % 2;
		void *word = (char *)model + at;
		uint64_t old = load(word, size), a = cut(random64(), size), b = cut(random64(), size);
		if (kind == 5 && random64() % 2)
			a = old; // the comparison succeeds
		if (random64() % 16 == 0)
			a = size == 4 ? UINT32_MAX : UINT64_MAX;
		uint64_t operand = 0, answer = 0;
		store(&operand, size, a);
		store(&answer, size, b);
		ucp_request_param_t p = { .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE, .datatype = ucp_dt_make_contig(size) };
		if (fetch) {
			p.op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
			p.reply_buffer = &answer;
		}
		wait_for(ucp_atomic_op_nbx(ep, ops[kind], &operand, 1, (uintptr_t)memory + at, rkey, &p), names[kind]);
		wait_for(ucp_ep_flush_nbx(ep, &none), "flush");
		store(word, size, apply(ops[kind], old, a, b));
		if (fetch && load(&answer, size) != old) {
			fprintf(stderr, "%s of %d bytes, operation %d: the answer is %#lx, the old value is %#lx\n", names[kind], size, i, load(&answer, size), old);
			return 1;
		}
		if (memcmp(memory, model, sizeof(model))) {
			fprintf(stderr, "%s of %d bytes at %d, operation %d: the memory is %#lx, the model %#lx\n", names[kind], size, at, i, load(memory + at, size), load(word, size));
			return 1;
		}
		seen[kind][size == 8]++;
	}
	wait_for(ucp_ep_close_nbx(ep, &none), "close");
	for (int i = 0; i < 6; i++)
		printf("%s: %lu of 4 bytes, %lu of 8\n", names[i], seen[i][0], seen[i][1]);
	printf("%d operations: every answer and the memory are right\n", COUNT);
	ucp_rkey_destroy(rkey);
	ucp_rkey_buffer_release(packed);
	ucp_worker_release_address(target, address);
	ucp_mem_unmap(ctx, mem);
	ucp_worker_destroy(initiator);
	ucp_worker_destroy(target);
	ucp_cleanup(ctx);
	return 0;
}
