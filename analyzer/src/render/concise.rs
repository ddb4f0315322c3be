//! One line a finding, for `grep` and editors: `GROUP:POSITION: CODE name: message`.
//!
//! `-` stands for a group or position that is not known. Where nothing is wrong the summary comes first, in the same shape
//! but without a code, so that no report is empty.

use std::io::{self, Write};

use super::text::escape;
use super::{Render, RenderOptions};
use crate::finding::{Class, Finding, Report};

/// One line a finding.
#[derive(Debug)]
pub(super) struct Concise;

impl Render for Concise {
    fn name(&self) -> &'static str {
        "concise"
    }

    fn summary(&self) -> &'static str {
        "one line a finding: GROUP:POSITION: CODE name: message"
    }

    fn is_human_readable(&self) -> bool {
        true
    }

    fn render(&self, report: &Report, _options: &RenderOptions, out: &mut dyn Write) -> io::Result<()> {
        if report.class == Class::Clean || report.findings.is_empty() {
            writeln!(out, "-:-: {}: {}", report.class.name(), escape(&report.summary))?;
        }
        for finding in &report.findings {
            let position = finding.first_divergence.or(finding.first_visible);
            let position = position.map_or_else(|| "-".to_owned(), |position| position.to_string());
            let Finding { code, name, headline, .. } = finding;
            writeln!(out, "{}:{position}: {code} {name}: {}", escape(&group(finding)), escape(headline))?;
        }
        Ok(())
    }
}

/// The group's name, its identity where it has none.
fn group(finding: &Finding) -> String {
    match &finding.group {
        Some(group) if group.name.is_empty() => group.identity.to_string(),
        Some(group) => group.name.clone(),
        None => "-".to_owned(),
    }
}
