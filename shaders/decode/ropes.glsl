// Layers may rotate differently, by one of ROPES ropes: which one a layer of the dispatch has.
uint rope_of(uint layer) {
    uint n = layer - pc.p.layer;
    return pc.p.ropes[n / 32u] >> n % 32u & 1u;
}
