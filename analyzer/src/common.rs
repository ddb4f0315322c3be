//! What a minority has in common: 'exactly local rank 0', 'one host', 'the odd ranks'.

use std::collections::BTreeMap;

use rankdiff_trace::RankSet;

use crate::align::Alignment;

/// Attributes that exactly these of the members share.
pub(crate) fn shared(alignment: &Alignment<'_>, ranks: &RankSet, members: &RankSet) -> Vec<String> {
    let mut found = Vec::new();
    if ranks.is_empty() || ranks.len() >= members.len() {
        return found;
    }
    let mut by_key: BTreeMap<String, BTreeMap<String, RankSet>> = BTreeMap::new();
    for stream in &alignment.attempt.streams {
        if !members.contains(stream.rank) {
            continue;
        }
        let mut note = |key: &str, value: &str| {
            by_key.entry(key.to_owned()).or_default().entry(value.to_owned()).or_default().insert(stream.rank);
        };
        note("host", &stream.trace.key.host);
        let def = stream.trace.ranks.iter().rev().find(|def| def.rank == stream.rank);
        if let Some(local) = def.and_then(|def| def.local_rank) {
            note("local_rank", &local.to_string());
        }
        for attribute in &stream.trace.attributes {
            if attribute.rank.is_none_or(|rank| rank == stream.rank) {
                note(&attribute.key, &attribute.value);
            }
        }
    }
    for (key, values) in &by_key {
        // Where every rank has a value of its own, sharing one says nothing.
        let tells = values.len() > 1 && (ranks.len() > 1 || values.values().any(|set| set.len() > 1));
        for (value, set) in values {
            if tells && set == ranks {
                found.push(phrase(key, value, ranks.len()));
            } else if tells && key == "host" && ranks.len() > 1 && ranks.is_subset(set) {
                // Several ranks on one machine are a hint, even where others on it do as the majority does.
                found.push(format!("all on host {value} ({} of its {} ranks)", ranks.len(), set.len()));
            }
        }
    }
    if ranks.len() > 1 {
        let parity = |odd: bool| members.iter().filter(|rank| (rank % 2 == 1) == odd).collect::<RankSet>();
        if *ranks == parity(true) {
            found.push("the odd ranks".to_owned());
        } else if *ranks == parity(false) {
            found.push("the even ranks".to_owned());
        }
    }
    found
}

fn phrase(key: &str, value: &str, ranks: usize) -> String {
    match key {
        "host" if ranks > 1 => format!("all ranks of host {value} and no other"),
        "host" => format!("the only rank of host {value}"),
        "local_rank" => format!("exactly local rank {value}"),
        "numa" => format!("exactly NUMA node {value}"),
        "stage" | "pipeline_stage" => format!("exactly pipeline stage {value}"),
        _ => format!("exactly {} {value}", key.replace('_', " ")),
    }
}
