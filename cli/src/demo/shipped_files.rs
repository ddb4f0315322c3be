const DIVERGE: &[Shipped] = &[];
const STALL: &[Shipped] = &[];
