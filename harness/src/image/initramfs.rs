//! The kernel and a small initramfs that enters the root file system.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use snaptax::command::Command;
use walkdir::WalkDir;

use super::Error;
use super::cpio::Archive;
use super::root::Root;
use crate::cache::{Cache, Key, Use};
use crate::file;

const ENTER: &str = include_str!("../../guest/initramfs-init");
const INIT: &str = include_str!("../../guest/init");

/// Modules needed to reach the root file system.
const MODULES: &[&str] = &["virtio_blk", "squashfs", "overlay", "ext4"];

/// A kernel with its initramfs.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    /// The kernel.
    pub(crate) vmlinuz: PathBuf,
    /// The initramfs.
    pub(crate) initramfs: PathBuf,
}

/// The kernel of this root file system with its initramfs, built if need be.
///
/// # Errors
/// When the root file system lacks a part of it.
pub(crate) fn ensure(cache: &Cache, root: &Root) -> Result<Kernel, Error> {
    let key = Key::of(&[root.key.as_str(), ENTER, INIT, &MODULES.join(" ")]);
    let directory = cache.get_or_build("kernel", &key, Use::Read, |directory| {
        let scratch = cache.scratch()?;
        build(directory, &scratch.path().join("root"), root)
    })?;
    Ok(Kernel {
        vmlinuz: directory.join("vmlinuz"),
        initramfs: directory.join("initramfs"),
    })
}

fn build(directory: &Path, unpacked: &Path, root: &Root) -> Result<(), Error> {
    Command::new("unsquashfs")
        .args(["-quiet", "-no-progress", "-no-xattrs", "-dest"])
        .arg(unpacked)
        .arg(root.squashfs())
        .args(["boot", "usr/lib/modules", "usr/bin/busybox"])
        .run()?;
    let vmlinuz = find(&unpacked.join("boot"), |name| name.starts_with("vmlinuz-"))?;
    fs::copy(&vmlinuz, directory.join("vmlinuz")).map_err(file::error("copy", &vmlinuz))?;

    let modules = unpacked.join("usr/lib/modules");
    let dependencies = find(&modules, |name| name == "modules.dep")?;
    let listing = fs::read_to_string(&dependencies).map_err(file::error("read", &dependencies))?;
    let order = load_order(&listing, MODULES).map_err(|what| Error::Lacks {
        image: "the guest's kernel",
        what: format!("the module {what}"),
    })?;

    let path = directory.join("initramfs");
    let file = File::create(&path).map_err(file::error("create", &path))?;
    let mut archive = Archive::new(BufWriter::new(file));
    let written = file::error("write", &path);
    let busybox = unpacked.join("usr/bin/busybox");
    let busybox = fs::read(&busybox).map_err(file::error("read", &busybox))?;
    let base = dependencies.parent().unwrap_or(&modules);
    let contents: Vec<_> = order
        .iter()
        .map(|module| Ok((file_name(module), decompressed(&base.join(module))?)))
        .collect::<Result<_, Error>>()?;
    (|| {
        archive.file("init", 0o755, ENTER.as_bytes())?;
        archive.file("guest-init", 0o755, INIT.as_bytes())?;
        archive.file("busybox", 0o755, &busybox)?;
        archive.directory("modules")?;
        for (name, content) in &contents {
            archive.file(&format!("modules/{name}"), 0o644, content)?;
        }
        let names: Vec<_> = contents.iter().map(|(name, _)| format!("{name}\n")).collect();
        archive.file("modules/order", 0o644, names.concat().as_bytes())?;
        archive.finish()?.flush()
    })()
    .map_err(written)
    .map_err(Error::from)
}

fn find(directory: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf, Error> {
    WalkDir::new(directory)
        .max_depth(2)
        .sort_by_file_name()
        .into_iter()
        .filter_map(Result::ok)
        .filter(|entry| wanted(&entry.file_name().to_string_lossy()))
        .last()
        .map(walkdir::DirEntry::into_path)
        .ok_or_else(|| Error::Lacks {
            image: "the guest image",
            what: format!("a kernel in {}", directory.display()),
        })
}

/// Files of these modules and all they depend on, in an order in which they can be loaded. `listing` is a
/// `modules.dep`: `file: file file ...`, where the last dependency is to be loaded first. Modules built into
/// the kernel are in no such file, so they must not be asked for.
fn load_order(listing: &str, wanted: &[&str]) -> Result<Vec<String>, String> {
    let mut order: Vec<String> = Vec::new();
    for module in wanted {
        let found = listing.lines().find_map(|line| {
            let (file, dependencies) = line.split_once(':')?;
            (stem(file) == *module).then_some((file, dependencies))
        });
        let (file, dependencies) = found.ok_or_else(|| (*module).to_owned())?;
        for file in dependencies.split_whitespace().rev().chain([file]) {
            if !order.iter().any(|known| known == file) {
                order.push(file.to_owned());
            }
        }
    }
    // ext4 asks for a checksum by name only when it mounts, which no dependency tells.
    if let Some(line) = listing
        .lines()
        .find(|line| stem(line.split(':').next().unwrap_or_default()) == "crc32c_generic")
    {
        order.insert(0, line.split(':').next().unwrap_or_default().to_owned());
    }
    Ok(order)
}

/// A module's name: the file's, up to the first dot, with `_` for `-`.
fn stem(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split('.').next().unwrap_or(name).replace('-', "_")
}

/// The name under which a module is put into the initramfs.
fn file_name(module: &str) -> String {
    format!("{}.ko", stem(module))
}

fn decompressed(module: &Path) -> Result<Vec<u8>, Error> {
    if module.extension().is_some_and(|extension| extension == "xz") {
        Command::new("xz")
            .args(["--decompress", "--keep", "--force"])
            .arg(module)
            .run()?;
        let plain = module.with_extension("");
        return Ok(fs::read(&plain).map_err(file::error("read", &plain))?);
    }
    Ok(fs::read(module).map_err(file::error("read", module))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "kernel/fs/ext4/ext4.ko.xz: kernel/lib/crc16.ko.xz kernel/fs/mbcache.ko.xz kernel/fs/jbd2/jbd2.ko.xz\n\
        kernel/fs/mbcache.ko.xz:\nkernel/lib/crc16.ko.xz:\nkernel/crypto/crc32c_generic.ko.xz:\n\
        kernel/drivers/md/dm-snapshot.ko.xz: kernel/drivers/md/dm-bufio.ko.xz kernel/drivers/md/dm-mod.ko.xz\n";

    #[test]
    fn a_module_comes_after_what_it_depends_on_and_once() {
        let order = load_order(LISTING, &["ext4", "dm_snapshot", "ext4"]).unwrap();
        let names: Vec<_> = order.iter().map(|file| stem(file)).collect();
        let expected = [
            "crc32c_generic",
            "jbd2",
            "mbcache",
            "crc16",
            "ext4",
            "dm_mod",
            "dm_bufio",
            "dm_snapshot",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_missing_module_is_named() {
        assert_eq!(load_order(LISTING, &["btrfs"]), Err("btrfs".to_owned()));
    }
}
