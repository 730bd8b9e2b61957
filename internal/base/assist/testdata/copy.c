/* A copy of libibverbs, with the number ID, as plugins bring their own. */
static struct { void *device; char ops[400]; int cmd_fd, async_fd; char rest[4096]; } context = {.cmd_fd = -1};

void *ibv_open_device(void *device)
{
	context.device = (void *)ID;
	return device ? &context : 0;
}

void *mlx5dv_open_device(void *device, void *attr)
{
	context.device = (void *)ID;
	return device && !attr ? &context : 0;
}

int ibv_close_device(void *c) { return c == &context ? ID : -ID; }
int ibv_modify_qp(void *qp, void *attr, int mask) { return qp || attr ? -ID : ID + mask; }
