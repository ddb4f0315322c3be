//! Output that appears whole or not at all: written beside its place under another name, then renamed. What is there
//! already is replaced only where the user said so.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempDir};

use crate::drafts::Draft;
use crate::failure::{Failure, USAGE};

fn occupied(path: &Path) -> Failure {
    Failure::message(USAGE, format_args!("{} exists; give another name with -o, or --force", path.display()))
}

fn not_empty(path: &Path, may_force: bool) -> Failure {
    let or = if may_force { ", or --force to replace files of the same names" } else { "" };
    Failure::message(USAGE, format_args!("{} is not empty; give another directory with -o{or}", path.display()))
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> Failure {
    // tempfile adds the name of the draft to an error, which says nothing to anybody.
    let text = error.to_string();
    let text = text.split(" at path \"").next().unwrap_or_default();
    Failure::message(USAGE, format_args!("cannot {doing} {}: {text}", path.display()))
}

/// The directory that something of this name is in.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file.
#[derive(Debug)]
pub(crate) enum StagedFile {
    /// Renamed when it is whole.
    Draft {
        /// What is written.
        file: Draft<NamedTempFile>,
        /// Its place.
        place: PathBuf,
        /// Whether what is there is replaced.
        force: bool,
    },
    /// A pipe or a device: nothing to rename.
    Special(fs::File),
}

impl StagedFile {
    /// Begins a file.
    pub(crate) fn create(place: &Path, force: bool) -> Result<StagedFile, Failure> {
        match fs::metadata(place) {
            Ok(found) if found.is_dir() => {
                return Err(Failure::message(
                    USAGE,
                    format_args!("{} is a directory; give the name of a file with -o", place.display()),
                ));
            }
            Ok(found) if !found.is_file() => {
                let opened = fs::OpenOptions::new().write(true).open(place);
                return opened.map(StagedFile::Special).map_err(|error| failed("open", place, &error));
            }
            Ok(_) if !force => return Err(occupied(place)),
            _ => {}
        }
        let file =
            Draft::make(|| NamedTempFile::new_in(parent(place))).map_err(|error| failed("create", place, &error))?;
        Ok(StagedFile::Draft { file, place: place.to_owned(), force })
    }

    /// Where its bytes go.
    pub(crate) fn writer(&mut self) -> Box<dyn Write + Send + '_> {
        match self {
            StagedFile::Draft { file, .. } => Box::new(file.get_mut().as_file_mut()),
            StagedFile::Special(file) => Box::new(file),
        }
    }

    /// Gives it its name.
    pub(crate) fn keep(self) -> Result<(), Failure> {
        let StagedFile::Draft { file, place, force } = self else { return Ok(()) };
        let kept = file.keep(|file| if force { file.persist(&place) } else { file.persist_noclobber(&place) });
        kept.map(drop).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => occupied(&place),
            _ => failed("create", &place, &error.error),
        })
    }
}

/// A directory.
#[derive(Debug)]
pub(crate) struct StagedDir {
    draft: Draft<TempDir>,
    place: PathBuf,
}

impl StagedDir {
    /// Begins a directory. One that is there must be empty, unless `force`: then files of the same names are replaced.
    /// `may_force`: the command has an option for that.
    pub(crate) fn create(place: &Path, force: bool, may_force: bool) -> Result<StagedDir, Failure> {
        match fs::symlink_metadata(place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("look at", place, &error)),
            Ok(_) => {
                let mut entries = fs::read_dir(place).map_err(|error| failed("list", place, &error))?;
                if !force && entries.next().is_some() {
                    return Err(not_empty(place, may_force));
                }
            }
        }
        let above = parent(place);
        fs::create_dir_all(above).map_err(|error| failed("make", above, &error))?;
        // What was recorded is its owner's alone.
        let own = fs::Permissions::from_mode(0o700);
        let mut builder = tempfile::Builder::new();
        builder.prefix(".rankdiff-").permissions(own);
        let draft = Draft::make(|| builder.tempdir_in(above));
        Ok(StagedDir { draft: draft.map_err(|error| failed("make", place, &error))?, place: place.to_owned() })
    }

    /// Where its files are made.
    pub(crate) fn path(&self) -> &Path {
        self.draft.path()
    }

    /// A failure to make its files, told with its place instead of the draft's.
    pub(crate) fn failed(&self, error: &dyn std::error::Error) -> Failure {
        let text = error.to_string().replace(&*self.path().to_string_lossy(), &self.place.to_string_lossy());
        Failure::message(USAGE, text)
    }

    /// Gives it its name.
    pub(crate) fn keep(self) -> Result<(), Failure> {
        let StagedDir { draft, place } = self;
        draft.keep(|draft| StagedDir::rename(draft, &place))
    }

    fn rename(draft: TempDir, place: &Path) -> Result<(), Failure> {
        if !place.exists() {
            fs::rename(draft.path(), place).map_err(|error| failed("create", place, &error))?;
            // It is no draft any more.
            let _ = draft.keep();
            return Ok(());
        }
        for entry in fs::read_dir(draft.path())? {
            let from = entry?.path();
            let to = place.join(from.file_name().unwrap_or_default());
            fs::rename(&from, &to).map_err(|error| failed("create", &to, &error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::path::Path;

    use super::{StagedDir, StagedFile};

    #[test]
    fn nothing_is_written_over_unless_asked_for() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let place = folder.path().join("out");
        let write = |force: bool, text: &str| {
            let mut staged = StagedFile::create(&place, force)?;
            staged.writer().write_all(text.as_bytes())?;
            staged.keep()
        };
        write(false, "one").expect("nothing is there");
        assert!(write(false, "two").expect_err("there").error().to_string().contains("--force"));
        assert_eq!(fs::read_to_string(&place).expect("there"), "one");
        write(true, "three").expect("asked for");
        assert_eq!(fs::read_to_string(&place).expect("there"), "three");
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 1, "drafts are gone");
    }

    #[test]
    fn a_draft_that_is_not_kept_leaves_nothing() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let place = folder.path().join("above/out");
        let staged = StagedDir::create(&place, false, true).expect("nothing is there");
        fs::write(staged.path().join("a"), "1").expect("own folder");
        let error = std::io::Error::other(format!("{}: no room", staged.path().join("a").display()));
        let text = staged.failed(&error).error().to_string();
        assert_eq!(text, format!("{}: no room", place.join("a").display()), "the draft is not named");
        drop(staged);
        assert_eq!(fs::read_dir(place.parent().expect("above")).expect("there").count(), 0);
        for force in [false, true] {
            let staged = StagedDir::create(&place, force, true).expect("free, or asked for");
            fs::write(staged.path().join("a"), "1").expect("own folder");
            staged.keep().expect("free, or asked for");
            assert_eq!(fs::read_to_string(place.join("a")).expect("there"), "1");
        }
        let refused =
            |may_force: bool| StagedDir::create(&place, false, may_force).expect_err("not empty").error().to_string();
        assert!(refused(true).contains("--force") && !refused(false).contains("--force"), "{}", refused(true));
    }

    #[test]
    fn who_cannot_write_is_told_of_the_target() {
        let file = Path::new("/proc/no-such-folder/out");
        let text = StagedFile::create(file, false).expect_err("nobody can").error().to_string();
        assert_eq!(text, format!("cannot create {}: No such file or directory (os error 2)", file.display()));
        let text = StagedDir::create(Path::new("/proc/out"), false, true).expect_err("nobody can").error().to_string();
        assert!(text.starts_with("cannot make /proc/out: ") && !text.contains(".rankdiff-"), "{text}");
    }
}
