// Which matrices of x and w a batch row of a quantized product multiplies.

#ifdef GATHERED
uint left_of(uint batch) { return min(U32s(pc.address[5]).v[batch], pc.p.x_batch - 1u); }
uint right_of(uint batch) { return min(U32s(pc.address[6]).v[batch], pc.p.w_batch - 1u); }
#else
uint left_of(uint batch) { return batch; }
uint right_of(uint batch) { return pc.p.w_batch == 1 ? 0 : batch; }
#endif
