//! A validator for the part of JSON Schema that docs/schema uses; any other keyword is an error, so that none is ignored.

use serde_json::Value;

/// What in `value` contradicts `schema`, each with its path; properties that the schema lacks are contradictions here.
pub(crate) fn problems(root: &Value, value: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    check(root, root, value, "$", &mut problems);
    problems
}

fn check(root: &Value, schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        let holds = match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" => true,
            "$ref" => {
                let pointer = rule.as_str().and_then(|text| text.strip_prefix('#')).expect("a local reference");
                check(root, root.pointer(pointer).expect("the reference leads somewhere"), value, path, problems);
                true
            }
            "type" => match rule {
                Value::Array(types) => types.iter().any(|name| is_of_type(value, name)),
                name => is_of_type(value, name),
            },
            "const" => value == rule,
            "enum" => rule.as_array().expect("enum lists values").contains(value),
            "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().expect("a number")),
            "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().expect("a number")),
            "pattern" => value.as_str().is_none_or(|text| matches(rule.as_str().expect("text"), text)),
            "required" => value.as_object().is_none_or(|object| {
                rule.as_array()
                    .expect("required lists names")
                    .iter()
                    .all(|name| object.contains_key(name.as_str().expect("text")))
            }),
            "properties" => {
                for (name, part) in value.as_object().into_iter().flatten() {
                    let path = format!("{path}.{name}");
                    match rule.get(name) {
                        Some(schema) => check(root, schema, part, &path, problems),
                        None => problems.push(format!("{path}: not in the schema")),
                    }
                }
                true
            }
            "items" => {
                for (at, part) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, part, &format!("{path}[{at}]"), problems);
                }
                true
            }
            other => panic!("keyword {other} at {path} is not supported by this test"),
        };
        if !holds {
            problems.push(format!("{path}: {keyword} does not hold for {value}"));
        }
    }
}

fn is_of_type(value: &Value, name: &Value) -> bool {
    match name.as_str().expect("a type is a name") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("type {other} is not supported by this test"),
    }
}

/// The four patterns of the schema, by hand; an unknown one is an error.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern {
        "^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$" => {
            text.parse::<rankdiff_trace::RankSet>().is_ok_and(|set| set.to_string() == text)
        }
        "^[A-Z][0-9]{3}$" => {
            text.len() == 4 && text.starts_with(|c: char| c.is_ascii_uppercase()) && text[1..].parse::<u16>().is_ok()
        }
        "^[a-z0-9]+(-[a-z0-9]+)*$" => text
            .split('-')
            .all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())),
        "^[0-9a-f]{16}$" => text.len() == 16 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')),
        other => panic!("pattern {other} is not supported by this test"),
    }
}
