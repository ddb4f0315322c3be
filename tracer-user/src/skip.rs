//! Tests that need something which is not here say so, and fail where nothing may be skipped.

/// Says that a test ends early.
///
/// # Panics
/// If nothing may be skipped (`RANKDIFF_REQUIRE_PRIVILEGED=1`).
pub(crate) fn skipped(why: std::fmt::Arguments<'_>) {
    println!("SKIPPED: {why}");
    let required = std::env::var_os("RANKDIFF_REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
    assert!(!required, "may not be skipped: {why}");
}
