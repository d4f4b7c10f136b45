// The addresses of a layer's buffers in kernels of many layers, which stand in rows of a table. And which thread this is, and which
// workgroup, as compilers know them for one layer only. Otherwise compilers would compute what follows from them before all layers, which
// takes registers that the products need.

#define LAYER layer
#define ADDRESS(which) (pack64(addresses[(layer - pc.p.layer) * COLUMNS + which]))
uint layer;

layout(constant_id = LAYERS_ID) const uint LAYERS = 64u; // rows of the table at most
shared uvec2 addresses[LAYERS * COLUMNS];

#define OWN_INVOCATION
uint own_thread, own_workgroup;
uint thread() { return own_thread; }
uint workgroup() { return own_workgroup; }
void look_again();
