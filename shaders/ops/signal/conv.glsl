// Where an output of a convolution reads; see ConvPush.

// The image of an output, and its tap 0 in the dilated input.
struct Place {
    uint image;
    ivec3 corner;
};

Place place_of(uint row) {
    Place place;
    [[unroll]] for (int d = 2; d >= 0; d--) {
        place.corner[d] = int(row % pc.p.out_shape[d] * pc.p.stride[d]) - pc.p.padding[d];
        row /= pc.p.out_shape[d];
    }
    place.image = row;
    return place;
}

// The position that a tap reads, counted in (image, axes); -1 if it is padding.
int tap_position(Place place, uint tap) {
    int position = 0, factor = 1;
    bool inside = true;
    [[unroll]] for (int d = 2; d >= 0; d--) {
        int at = place.corner[d] + int(tap % pc.p.kernel[d] * pc.p.kernel_dilation[d]), dilation = int(pc.p.input_dilation[d]);
        tap /= pc.p.kernel[d];
        inside = inside && at >= 0;
        if (inside && dilation > 1) {
            inside = at % dilation == 0;
            at /= dilation;
        }
        inside = inside && at < int(pc.p.in_shape[d]);
        position += at * factor;
        factor *= int(pc.p.in_shape[d]);
    }
    return inside ? position + int(place.image) * factor : -1;
}
