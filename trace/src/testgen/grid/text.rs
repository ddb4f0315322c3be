//! Shapes and changes as they are typed: `tp=8,pp=10,dp=128` and `op@5000:rank=77`.

use std::str::FromStr;

use super::spec::{Change, GridError, GridSpec, Plant};

fn wrong(text: &str, what: impl Into<String>) -> GridError {
    GridError::Text { text: text.to_owned(), what: what.into() }
}

/// `tp=8,pp=10,dp=128`: any of them, in any order, each 1 where it is left out. The rest is as by default.
impl FromStr for GridSpec {
    type Err = GridError;

    fn from_str(text: &str) -> Result<GridSpec, GridError> {
        let mut spec = GridSpec { tensor: 1, pipeline: 1, data: 1, ..GridSpec::default() };
        for part in text.split(',') {
            let (name, size) =
                part.split_once('=').ok_or_else(|| wrong(text, "sizes are given as tp=8,pp=10,dp=128"))?;
            let size: u32 = size.trim().parse().map_err(|_| wrong(text, format!("'{size}' is no number of ranks")))?;
            match name.trim() {
                "tp" => spec.tensor = size,
                "pp" => spec.pipeline = size,
                "dp" => spec.data = size,
                other => return Err(wrong(text, format!("no group '{other}'; there are tp, pp and dp"))),
            }
        }
        Ok(spec)
    }
}

/// `CHANGE@CALL:rank=RANK`.
impl FromStr for Plant {
    type Err = GridError;

    fn from_str(text: &str) -> Result<Plant, GridError> {
        let form = || wrong(text, "a change is given as op@5000:rank=77 (what, at which call, on which rank)");
        let (name, place) = text.split_once('@').ok_or_else(form)?;
        let (call, rank) = place.split_once(":rank=").ok_or_else(form)?;
        let change = Change::ALL.into_iter().find(|change| change.name() == name).ok_or_else(|| {
            let names = Change::ALL.map(Change::name).join(", ");
            wrong(text, format!("no change '{name}'; there are {names}"))
        })?;
        let call = call.parse().map_err(|_| wrong(text, format!("'{call}' is no number of a call")))?;
        let rank = rank.parse().map_err(|_| wrong(text, format!("'{rank}' is no rank")))?;
        Ok(Plant { change, rank, call })
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, GridSpec, Plant};

    #[test]
    fn shapes_and_changes_are_read_as_typed() {
        let spec: GridSpec = "tp=8, dp=128,pp=10".parse().expect("right");
        assert_eq!((spec.tensor, spec.pipeline, spec.data), (8, 10, 128));
        let spec: GridSpec = "dp=4".parse().expect("right");
        assert_eq!((spec.tensor, spec.pipeline, spec.data), (1, 1, 4));
        for change in Change::ALL {
            let plant: Plant = format!("{}@5000:rank=77", change.name()).parse().expect("right");
            assert_eq!(plant, Plant { change, rank: 77, call: 5000 });
        }
    }

    #[test]
    fn what_is_typed_wrongly_is_said_with_what_is_right() {
        let shape = |text: &str| text.parse::<GridSpec>().expect_err("wrong").to_string();
        assert_eq!(shape("8x8"), "8x8: sizes are given as tp=8,pp=10,dp=128");
        assert_eq!(shape("tp=-1"), "tp=-1: '-1' is no number of ranks");
        assert_eq!(shape("ep=2"), "ep=2: no group 'ep'; there are tp, pp and dp");
        let plant = |text: &str| text.parse::<Plant>().expect_err("wrong").to_string();
        assert!(plant("op").starts_with("op: a change is given as op@5000:rank=77"), "{}", plant("op"));
        assert!(plant("bug@1:rank=0").contains("no change 'bug'; there are op, count"), "{}", plant("bug@1:rank=0"));
        assert_eq!(plant("op@x:rank=0"), "op@x:rank=0: 'x' is no number of a call");
        assert_eq!(plant("op@1:rank=y"), "op@1:rank=y: 'y' is no rank");
    }
}
