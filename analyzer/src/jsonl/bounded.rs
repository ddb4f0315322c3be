//! Lists and texts of a line, cut off at the trace format's limits while they are read: a list of millions of empty
//! objects would otherwise take many times the memory that its text does.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

struct List<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() >= MOST {
                return Err(A::Error::custom(format_args!("a list of more than {MOST} items")));
            }
            list.push(item);
        }
        Ok(list)
    }
}

/// A list of at most `MOST` items.
pub(super) fn list<'de, D, T, const MOST: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(List::<T, MOST>(PhantomData))
}
