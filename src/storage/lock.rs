use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::time::Duration;

use crate::storage::{Error, holders, wait_until};

/// Locks a file, which is made if need be, and waits for others as long as the deadline says; `waiting` is called at each
/// look in vain. The lock goes with the file.
pub(crate) fn lock(path: &Path, deadline: Duration, mut waiting: impl FnMut()) -> Result<File, Error> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let file = file.map_err(Error::file("lock", path))?;
    let locked = wait_until(deadline, || match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => {
            waiting();
            Ok(false)
        }
        Err(TryLockError::Error(error)) => Err(Error::file("lock", path)(error)),
    })?;
    if locked {
        return Ok(file);
    }
    Err(Error::StillHeld {
        what: path.display().to_string(),
        waited: deadline,
        holders: holders::of_directory(path),
    })
}
