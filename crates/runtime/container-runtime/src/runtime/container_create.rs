//! CreateContainer: everything about a container is decided and written; nothing runs yet.
//!
//! Order: name, record, mounts of images, the specification, created. A failure takes all of it
//! back.
//!
//! upstream: containerd internal/cri/server/container_create.go

use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use container_create::hooks::ROOT_IN_BUNDLE;
use container_create::spec::ContainerSpec;
use cri_wire::v1;
use cri_wire::v1::ContainerEventType as Kind;
use image_store::{ImageConfig, ImageRecord, Store};
use pod_supervisor::Client;
use prost::Message as _;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};

use super::Runtime;
use super::defined_volumes::defined_volumes;
use crate::book::{Container, Sandbox, container_name};
use crate::clock::nanoseconds;
use crate::crash_points::reached;
use crate::durable;
use crate::failure::{Doing as _, Failure, Result, blocking};
use crate::identity;
use crate::records::{ContainerRecord, ContainerStage, SandboxStage};
use crate::signals;
use crate::specification::{Identity, Ingredients, Labels, Wish, container_spec};

/// The file with a container's specification, in its directory.
pub(super) const SPECIFICATION: &str = "specification";

impl Runtime {
    pub async fn create_container(&self, request: v1::CreateContainerRequest) -> Result<String> {
        let runtime = self.clone();
        self.to_its_end(async move { Box::pin(runtime.create(request)).await }).await
    }

    async fn create(&self, request: v1::CreateContainerRequest) -> Result<String> {
        let sandbox = self
            .book
            .sandbox(&request.pod_sandbox_id)
            .doing(format!("failed to find sandbox id {:?}", request.pod_sandbox_id))?;
        let config = request.config.unwrap_or_default();
        let pod = sandbox.record();
        check_ready(&sandbox)?;
        if config.metadata.is_none() {
            return Err(Failure::plain("container config must include metadata"));
        }
        let sandbox_config = request.sandbox_config.unwrap_or_default();
        if sandbox_config.metadata.is_none() {
            return Err(Failure::plain("pod sandbox config must include metadata"));
        }
        let id = identity::fresh()?;
        let mut record = ContainerRecord {
            id: id.clone(),
            sandbox_id: sandbox.id.clone(),
            config: Some(config.clone()),
            created_at: nanoseconds(),
            ..Default::default()
        };
        let name = container_name(&record, Some(&pod));
        let shown = name.trim_start_matches("container/").to_owned();
        self.book.reserve(&name, &id).doing(format!(
            "failed to reserve container name {shown:?}; check if another CreateContainer request is in progress"
        ))?;
        let found = self.image_of(&config).await;
        let (image, image_config) = match found {
            Ok(found) => found,
            Err(failure) => {
                self.book.release(&id);
                return Err(failure);
            }
        };
        record.image_id = image.id.to_string();
        record.log_path = log_path(&sandbox_config, &config);
        record.stop_signal =
            signals::of_stop(config.stop_signal(), &image_config.config.stop_signal);
        record.resources = config.linux.as_ref().and_then(|linux| linux.resources.clone());
        let container = match self.book.add_container(record).await {
            Ok(container) => container,
            Err(failure) => {
                self.book.release(&id);
                return Err(failure);
            }
        };
        reached("container-recorded");
        match self.furnish(&container, &sandbox, sandbox_config, image_config).await {
            Ok(()) => {
                self.tell(&id, &sandbox.id, Kind::ContainerCreatedEvent).await;
                Ok(id)
            }
            Err(failure) => {
                self.dispose_container(&container).await?;
                Err(failure)
            }
        }
    }

    async fn image_of(&self, config: &v1::ContainerConfig) -> Result<(ImageRecord, ImageConfig)> {
        let name = config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
        let image =
            self.images.resolve(&name).await.doing(format!("failed to resolve image {name:?}"))?;
        let record = image.clone();
        let config = self.images.with_store(move |store| Ok(store.image_config(&record)?)).await?;
        Ok((image, config))
    }

    /// Prepares mounts, volumes and the specification, then marks the container created.
    async fn furnish(
        &self,
        container: &Arc<Container>,
        sandbox: &Arc<Sandbox>,
        sandbox_config: v1::PodSandboxConfig,
        image_config: ImageConfig,
    ) -> Result<()> {
        check_ready(sandbox)?;
        let record = container.record();
        let config = record.config.clone().unwrap_or_default();
        let names = image_view_names(&container.id, &config);
        self.book
            .change_container(container, |record| {
                record.image_views.clone_from(&names);
                !names.is_empty()
            })
            .await?;
        let (machine, places) = (Arc::clone(&self.machine), self.places(&sandbox.id));
        let (folder, mounts) =
            (self.container_folder(&container.id), self.container_mounts(&container.id));
        let log_path = record.log_path.clone();
        let (id, image_id) = (container.id.clone(), record.image_id.clone());
        let sandbox_id = sandbox.id.clone();
        let store = self.images.store();
        let pod_namespaces = namespaces_of(&sandbox.record());
        let handler = self.handler_of(&sandbox.record(), &config);
        let device_folders = self.settings.device_specifications.clone();
        let (cgroup, user) = blocking(move || {
            durable::make_folder(&folder)?;
            make_log_dir(&sandbox_config, &config)?;
            let wish = Wish::of_pod(&sandbox_id, &sandbox_config).of_container(&config);
            let labels = machine.selinux.labels(&wish)?;
            let mut view = store.create_view(&id, &image_id)?;
            view.overlay.label.clone_from(&labels.file);
            let mut extra_mounts = mount_images(&store, &config, (&names, &labels), &mounts)?;
            let defined = &image_config.config.volumes;
            extra_mounts.extend(defined_volumes(&view.overlay, &folder, &config, defined)?);
            let root = match &handler {
                Some(_) => Some(mount_root(&view.overlay, &mounts)?),
                None => None,
            };
            let given = Ingredients {
                id: &id,
                config: &config,
                sandbox: &sandbox_config,
                pod_namespaces,
                image: &image_config.config,
                overlay: &view.overlay,
                places: &places,
                extra_mounts,
                log_path: &log_path,
                handler,
                root,
                device_folders: &device_folders,
                labels: &labels,
            };
            let (mut spec, identity) = container_spec(&machine, &given)
                .doing(format!("failed to generate container {id:?} spec"))?;
            make_bundle(&mut spec, &folder)?;
            let specification = folder.join(SPECIFICATION);
            // Need not outlive a power failure: the pod does not either, so the container is never
            // started.
            durable::write_lasting(
                &specification,
                &spec.encode_to_vec(),
                durable::Lasting::ThroughKills,
            )?;
            let cgroup = spec.cgroup.map(|cgroup| cgroup.path).unwrap_or_default();
            Ok((cgroup, user_of(&identity)))
        })
        .await?;
        reached("container-furnished");
        self.book
            .change_container(container, |record| {
                record.user = Some(user);
                record.cgroup = cgroup;
                record.created_at = nanoseconds();
                record.set_stage(ContainerStage::Created);
                true
            })
            .await
            .map(drop)
    }

    /// Removes everything of a container. Continues an interrupted removal.
    pub(super) async fn dispose_container(&self, container: &Arc<Container>) -> Result<()> {
        if let Ok(sandbox) = self.book.sandbox(&container.sandbox_id) {
            let id = &container.id;
            let delete = |client: Client| async move { client.delete(id).await };
            self.by_supervisor(&sandbox, delete).await?;
        }
        self.remove_group(&container.record().cgroup, &container.id).await?;
        let (folder, mounts) =
            (self.container_folder(&container.id), self.container_mounts(&container.id));
        let (store, mut views) = (self.images.store(), container.record().image_views);
        views.push(container.id.clone());
        blocking(move || {
            super::pod_files::remove_with_mounts(&mounts)?;
            for view in views {
                store.remove_view(&view)?;
            }
            durable::remove_tree(&folder)
        })
        .await?;
        reached("container-disposed");
        self.usage.forget(&container.id);
        self.book.remove_container(&container.id).await
    }
}

/// Checked again once the container is in the store: a removal of the pod stops it first, and then
/// removes all of its containers in the store.
fn check_ready(sandbox: &Sandbox) -> Result<()> {
    if sandbox.record().stage() == SandboxStage::Ready {
        return Ok(());
    }
    Err(Failure::plain(format!("sandbox {:?} is not running", sandbox.id)))
}

fn namespaces_of(record: &crate::records::SandboxRecord) -> v1::NamespaceOption {
    let linux = record.config.as_ref().and_then(|config| config.linux.as_ref());
    let security = linux.and_then(|linux| linux.security_context.as_ref());
    security.and_then(|security| security.namespace_options.clone()).unwrap_or_default()
}

fn user_of(identity: &Identity) -> v1::LinuxContainerUser {
    v1::LinuxContainerUser {
        uid: identity.uid.into(),
        gid: identity.gid.into(),
        supplemental_groups: identity.groups.iter().copied().map(i64::from).collect(),
    }
}

/// A kubelet creates the log directory; other clients need not. A pod may be able to write to the
/// directory of its logs: no link below it is followed.
/// upstream: containerd internal/cri/server/helpers_linux.go
fn make_log_dir(sandbox: &v1::PodSandboxConfig, config: &v1::ContainerConfig) -> Result<()> {
    let Some(name) = log_name(sandbox, config) else { return Ok(()) };
    let dir = Path::new(&sandbox.log_directory);
    let made = host_paths::Folder::make(dir, LOG_DIR_MODE)
        .and_then(|dir| dir.make_folder(name.parent().unwrap_or(Path::new("")), LOG_DIR_MODE));
    made.map(drop).map_err(|error| Failure::plain(error.to_string()))
}

const LOG_DIR_MODE: u32 = 0o755;

/// Below the pod's directory. A log is written only if both parts of its path are given.
fn log_name<'a>(
    sandbox: &v1::PodSandboxConfig,
    config: &'a v1::ContainerConfig,
) -> Option<&'a Path> {
    // An absolute path is below the directory, too, as upstream joins them.
    let name = config.log_path.trim_start_matches('/');
    (!sandbox.log_directory.is_empty() && !name.is_empty()).then(|| Path::new(name))
}

fn log_path(sandbox: &v1::PodSandboxConfig, config: &v1::ContainerConfig) -> String {
    let name = log_name(sandbox, config);
    name.map(|name| Path::new(&sandbox.log_directory).join(name).display().to_string())
        .unwrap_or_default()
}

/// A name for each image mount, by its index in the list.
fn image_view_names(id: &str, config: &v1::ContainerConfig) -> Vec<String> {
    let images = config.mounts.iter().filter(|mount| mount.image.is_some());
    images.enumerate().map(|(at, _)| format!("{id}-{at}")).collect()
}

/// Mounts images that are used as volumes; returns them as host mounts.
fn mount_images(
    store: &Store,
    config: &v1::ContainerConfig,
    (names, labels): (&[String], &Labels),
    folder: &Path,
) -> Result<Vec<v1::Mount>> {
    let mut all = Vec::new();
    let images = config.mounts.iter().filter(|mount| mount.image.is_some());
    for (mount, view) in images.zip(names) {
        let image = mount.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
        let at = &mount.container_path;
        if !mount.host_path.is_empty() {
            return Err(Failure::plain(format!(
                "hostpath must be empty while mount image: {:?} at {at:?}",
                mount.host_path
            )));
        }
        if !mount.readonly {
            return Err(Failure::plain(format!(
                "readonly must be true while mount image: {image:?} at {at:?}"
            )));
        }
        if image.is_empty() {
            return Err(Failure::plain(format!("image not specified in the mount at {at:?}")));
        }
        let mut made = store
            .create_read_only_view(view, &image)
            .doing(format!("failed to mount image volume {image:?}"))?;
        let place = folder.join(view.rsplit('-').next().unwrap_or_default());
        durable::make_folder(&place)?;
        made.overlay.label.clone_from(&labels.file);
        image_store::mount_overlay(&made.overlay, &place)?;
        let source = beneath(&place, &mount.image_sub_path).doing(format!(
            "failed to ensure image subpath {:?} in {image:?}",
            mount.image_sub_path
        ))?;
        all.push(v1::Mount {
            host_path: source.display().to_string(),
            readonly: true,
            // It is mounted with its label.
            selinux_relabel: false,
            recursive_read_only: false,
            propagation: 0,
            image: None,
            ..mount.clone()
        });
    }
    Ok(all)
}

/// A directory of an image by its path there; links do not lead out of the image.
///
/// upstream: containerd internal/cri/server/container_image_mount.go (ensureImageSubPath)
fn beneath(root: &Path, name: &str) -> Result<PathBuf> {
    if name.is_empty() {
        return Ok(root.to_owned());
    }
    if name.split('/').any(|part| part == "..") {
        return Err(Failure::plain("it has a part that leads upwards"));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let folder = open(root, flags, Mode::empty())
        .and_then(|root| openat2(&root, name, flags, Mode::empty(), resolve))
        .doing("opening it")?;
    // The image is mounted read-only, so the result cannot change.
    let link = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let found = std::fs::read_link(&link).doing("finding its path")?;
    if !found.starts_with(root) {
        return Err(Failure::plain("it lies outside the image"));
    }
    Ok(found)
}

/// Creates the bundle in which hooks find the container's configuration and root.
fn make_bundle(spec: &mut ContainerSpec, folder: &Path) -> Result<()> {
    if spec.hooks.is_empty() {
        return Ok(());
    }
    let bundle = folder.join("bundle");
    let root = bundle.join(ROOT_IN_BUNDLE);
    durable::make_folder(&root)?;
    let text = oci_bundle::for_hooks(spec, &root.display().to_string())
        .map_err(|error| Failure::plain(error.to_string()))?;
    let file = bundle.join("config.json");
    std::fs::write(&file, text).doing(format!("writing {}", file.display()))?;
    spec.bundle = bundle.display().to_string();
    Ok(())
}

/// Mounts the container's root for an OCI runtime.
fn mount_root(overlay: &image_store::OverlayOptions, folder: &Path) -> Result<PathBuf> {
    let place = folder.join("root");
    durable::make_folder(&place)?;
    image_store::mount_overlay(overlay, &place)?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_an_image_are_found_beneath_it_or_not_at_all() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().canonicalize().unwrap().join("image");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir(outer.path().join("secret")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        for (link, target) in
            [("up", "../secret"), ("absolute", "/a/b"), ("loop", "loop"), ("far", "/../../etc")]
        {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
        }
        for (name, found) in [
            ("", Some("")),
            ("a", Some("a")),
            ("a/b", Some("a/b")),
            ("/a/b", Some("a/b")),
            // Links stay inside.
            ("absolute", Some("a/b")),
            ("up", None),
            ("far", None),
            ("loop", None),
            ("../secret", None),
            ("a/../../secret", None),
            ("file", None),
            ("missing", None),
        ] {
            let outcome = beneath(&root, name);
            let expected = found.map(|found| root.join(found));
            assert_eq!(
                outcome.as_ref().ok().map(|path| path.components().collect::<PathBuf>()),
                expected.map(|path| path.components().collect::<PathBuf>()),
                "{name:?}: {outcome:?}"
            );
        }
    }
}
