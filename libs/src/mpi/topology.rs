//! Grids: the extents of Cartesian communicators, so that what `MPI_Cart_sub` makes of them is known.
//!
//! Ranks of a grid are in row-major order, by the standard. General graphs are deliberately not kept: which members are
//! neighbours would be needed to compare the vectors of neighbourhood collectives, and nothing else.

use rustc_hash::FxHashMap;

/// Most dimensions that are kept.
const MAX_DIMENSIONS: usize = 32;
/// Most grids of one process.
const MAX_GRIDS: usize = 1 << 16;

/// One part of a grid, seen by one of its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Which part: the member's coordinates in the dimensions that are dropped, as one number.
    pub(super) color: u64,
    /// Members of the part.
    pub(super) size: u64,
    /// This member's rank in it.
    pub(super) rank: u64,
    /// Extents of the part.
    pub(super) dims: Vec<u64>,
}

/// The grids of one process by communicator handle.
#[derive(Debug, Default)]
pub(super) struct Grids {
    dims: FxHashMap<u64, Vec<u64>>,
}

impl Grids {
    /// The handle means a grid of these extents from now on, or no grid.
    pub(super) fn set(&mut self, comm: u64, dims: Option<Vec<u64>>) {
        match dims {
            Some(dims) if dims.len() <= MAX_DIMENSIONS && self.dims.len() < MAX_GRIDS => {
                self.dims.insert(comm, dims);
            }
            _ => {
                self.dims.remove(&comm);
            }
        }
    }

    /// The extents of a grid.
    pub(super) fn dims(&self, comm: u64) -> Option<&[u64]> {
        self.dims.get(&comm).map(Vec::as_slice)
    }

    /// The part that keeps some dimensions of a grid and holds this rank. `remain` holds one number per dimension.
    pub(super) fn part(&self, comm: u64, rank: u32, remain: &[u64]) -> Option<Part> {
        let dims = self.dims(comm)?;
        let mut rest = u64::from(rank);
        let mut coordinates = Vec::with_capacity(dims.len());
        for &extent in dims.iter().rev() {
            coordinates.push(rest.checked_rem(extent)?);
            rest = rest.checked_div(extent)?;
        }
        coordinates.reverse();
        if rest != 0 || remain.len() != dims.len() {
            return None;
        }
        let mut part = Part { color: 0, size: 1, rank: 0, dims: Vec::new() };
        for ((&extent, coordinate), &keep) in dims.iter().zip(coordinates).zip(remain) {
            if keep == 0 {
                part.color = part.color.checked_mul(extent)?.checked_add(coordinate)?;
            } else {
                part.size = part.size.checked_mul(extent)?;
                part.rank = part.rank.checked_mul(extent)?.checked_add(coordinate)?;
                part.dims.push(extent);
            }
        }
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::{Grids, Part};

    #[test]
    fn rows_and_columns_of_a_grid() {
        let mut grids = Grids::default();
        grids.set(1, Some(vec![2, 3]));
        let row = grids.part(1, 4, &[0, 1]);
        assert_eq!(row, Some(Part { color: 1, size: 3, rank: 1, dims: vec![3] }));
        let column = grids.part(1, 4, &[1, 0]);
        assert_eq!(column, Some(Part { color: 1, size: 2, rank: 1, dims: vec![2] }));
        let nothing = grids.part(1, 4, &[0, 0]);
        assert_eq!(nothing, Some(Part { color: 4, size: 1, rank: 0, dims: vec![] }));
    }

    #[test]
    fn parts_of_one_colour_have_distinct_ranks() {
        let mut grids = Grids::default();
        grids.set(1, Some(vec![2, 3, 4]));
        for remain in [[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]] {
            let mut seen = std::collections::BTreeSet::new();
            for rank in 0..24 {
                let part = grids.part(1, rank, &remain).expect("in the grid");
                assert!(part.rank < part.size && seen.insert((part.color, part.rank)), "{remain:?} {rank}");
            }
        }
    }

    #[test]
    fn what_is_no_grid_has_no_parts() {
        let mut grids = Grids::default();
        assert_eq!(grids.part(1, 0, &[1]), None);
        grids.set(1, Some(vec![2, 0]));
        assert_eq!(grids.part(1, 0, &[1, 1]), None, "an empty dimension");
        grids.set(1, Some(vec![2]));
        assert_eq!(grids.part(1, 2, &[1]), None, "a rank outside");
        assert_eq!(grids.part(1, 1, &[1, 1]), None, "another number of dimensions");
        grids.set(1, None);
        assert_eq!(grids.part(1, 0, &[1]), None);
    }
}
