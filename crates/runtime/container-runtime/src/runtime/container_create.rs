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
use image_store::{ImageConfig, ImageStore, StoredImage};
use pod_supervisor::SupervisorClient;
use prost::Message as _;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};

use super::Runtime;
use super::defined_volumes::defined_volumes;
use crate::clock::nanoseconds;
use crate::crash_points::reached;
use crate::durable;
use crate::failure::{CallContext as _, CriError, Result, blocking};
use crate::identity;
use crate::record_store::{Container, Sandbox, container_name};
use crate::records::{ContainerStage, SandboxStage, StoredContainer};
use crate::signals;
use crate::specification::{
    ContainerInputs, LabelRequest, ResolvedUser, SelinuxLabels, container_spec,
};

/// The file with a container's specification, in its directory.
pub(super) const SPECIFICATION: &str = "specification";

impl Runtime {
    pub async fn create_container(&self, request: v1::CreateContainerRequest) -> Result<String> {
        let runtime = self.clone();
        self.run_to_completion(async move { Box::pin(runtime.create(request)).await }).await
    }

    async fn create(&self, request: v1::CreateContainerRequest) -> Result<String> {
        let sandbox = self
            .record_store
            .sandbox(&request.pod_sandbox_id)
            .doing(format!("failed to find sandbox id {:?}", request.pod_sandbox_id))?;
        let config = request.config.unwrap_or_default();
        let pod = sandbox.record();
        check_ready(&sandbox)?;
        if config.metadata.is_none() {
            return Err(CriError::plain("container config must include metadata"));
        }
        let sandbox_config = request.sandbox_config.unwrap_or_default();
        if sandbox_config.metadata.is_none() {
            return Err(CriError::plain("pod sandbox config must include metadata"));
        }
        let id = identity::fresh()?;
        let mut record = StoredContainer {
            id: id.clone(),
            sandbox_id: sandbox.id.clone(),
            config: Some(config.clone()),
            created_at: nanoseconds(),
            ..Default::default()
        };
        let name = container_name(&record, Some(&pod));
        let shown = name.trim_start_matches("container/").to_owned();
        self.record_store.reserve(&name, &id).doing(format!(
            "failed to reserve container name {shown:?}; check if another CreateContainer request is in progress"
        ))?;
        let found = self.image_of(&config).await;
        let (image, image_config) = match found {
            Ok(found) => found,
            Err(failure) => {
                self.record_store.release(&id);
                return Err(failure);
            }
        };
        record.image_id = image.id.to_string();
        record.log_path = log_path(&sandbox_config, &config);
        record.stop_signal =
            signals::of_stop(config.stop_signal(), &image_config.config.stop_signal);
        record.resources = config.linux.as_ref().and_then(|linux| linux.resources.clone());
        let container = match self.record_store.add_container(record).await {
            Ok(container) => container,
            Err(failure) => {
                self.record_store.release(&id);
                return Err(failure);
            }
        };
        reached("container-recorded");
        match self.prepare_container(&container, &sandbox, sandbox_config, image_config).await {
            Ok(()) => {
                self.send_event(&id, &sandbox.id, Kind::ContainerCreatedEvent).await;
                Ok(id)
            }
            Err(failure) => {
                self.cleanup_container(&container).await?;
                Err(failure)
            }
        }
    }

    async fn image_of(&self, config: &v1::ContainerConfig) -> Result<(StoredImage, ImageConfig)> {
        let name = config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
        let image =
            self.images.resolve(&name).await.doing(format!("failed to resolve image {name:?}"))?;
        let record = image.clone();
        let config = self.images.with_store(move |store| Ok(store.image_config(&record)?)).await?;
        Ok((image, config))
    }

    /// Prepares mounts, volumes and the specification, then marks the container created.
    async fn prepare_container(
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
        self.record_store
            .change_container(container, |record| {
                record.image_views.clone_from(&names);
                !names.is_empty()
            })
            .await?;
        let (machine, pod_paths) = (Arc::clone(&self.machine), self.pod_paths(&sandbox.id));
        let (dir, mounts) =
            (self.container_dir(&container.id), self.container_mounts(&container.id));
        let log_path = record.log_path.clone();
        let (id, image_id) = (container.id.clone(), record.image_id.clone());
        let sandbox_id = sandbox.id.clone();
        let store = self.images.store();
        let pod_namespaces = namespaces_of(&sandbox.record());
        let handler = self.handler_of(&sandbox.record(), &config);
        let device_dirs = self.settings.device_specifications.clone();
        let (cgroup, user) = blocking(move || {
            durable::make_dir(&dir)?;
            make_log_dir(&sandbox_config, &config)?;
            let request = LabelRequest::of_pod(&sandbox_id, &sandbox_config).of_container(&config);
            let labels = machine.selinux.labels(&request)?;
            let mut view = store.create_view(&id, &image_id)?;
            view.overlay.label.clone_from(&labels.file);
            let mut extra_mounts = mount_images(&store, &config, (&names, &labels), &mounts)?;
            let defined = &image_config.config.volumes;
            extra_mounts.extend(defined_volumes(&view.overlay, &dir, &config, defined)?);
            let root = match &handler {
                Some(_) => Some(mount_root(&view.overlay, &mounts)?),
                None => None,
            };
            let inputs = ContainerInputs {
                id: &id,
                config: &config,
                sandbox: &sandbox_config,
                pod_namespaces,
                image: &image_config.config,
                overlay: &view.overlay,
                pod_paths: &pod_paths,
                extra_mounts,
                log_path: &log_path,
                handler,
                root,
                device_dirs: &device_dirs,
                labels: &labels,
            };
            let (mut spec, identity) = container_spec(&machine, &inputs)
                .doing(format!("failed to generate container {id:?} spec"))?;
            make_bundle(&mut spec, &dir)?;
            let specification = dir.join(SPECIFICATION);
            // Need not outlive a power failure: the pod does not either, so the container is never
            // started.
            durable::write_with_durability(
                &specification,
                &spec.encode_to_vec(),
                durable::Durability::SurvivesKills,
            )?;
            let cgroup = spec.cgroup.map(|cgroup| cgroup.path).unwrap_or_default();
            Ok((cgroup, user_of(&identity)))
        })
        .await?;
        reached("container-furnished");
        self.record_store
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
    pub(super) async fn cleanup_container(&self, container: &Arc<Container>) -> Result<()> {
        if let Ok(sandbox) = self.record_store.sandbox(&container.sandbox_id) {
            let id = &container.id;
            let delete = |client: SupervisorClient| async move { client.delete(id).await };
            self.call_supervisor(&sandbox, delete).await?;
        }
        self.remove_group(&container.record().cgroup, &container.id).await?;
        let (dir, mounts) =
            (self.container_dir(&container.id), self.container_mounts(&container.id));
        let (store, mut views) = (self.images.store(), container.record().image_views);
        views.push(container.id.clone());
        blocking(move || {
            super::pod_files::remove_with_mounts(&mounts)?;
            for view in views {
                store.remove_view(&view)?;
            }
            durable::remove_tree(&dir)
        })
        .await?;
        reached("container-disposed");
        self.usage.forget(&container.id);
        self.record_store.remove_container(&container.id).await
    }
}

/// Checked again once the container is in the store: a removal of the pod stops it first, and then
/// removes all of its containers in the store.
fn check_ready(sandbox: &Sandbox) -> Result<()> {
    if sandbox.record().stage() == SandboxStage::Ready {
        return Ok(());
    }
    Err(CriError::plain(format!("sandbox {:?} is not running", sandbox.id)))
}

fn namespaces_of(record: &crate::records::StoredSandbox) -> v1::NamespaceOption {
    let linux = record.config.as_ref().and_then(|config| config.linux.as_ref());
    let security = linux.and_then(|linux| linux.security_context.as_ref());
    security.and_then(|security| security.namespace_options.clone()).unwrap_or_default()
}

fn user_of(identity: &ResolvedUser) -> v1::LinuxContainerUser {
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
    let made = host_paths::OpenDir::make(dir, LOG_DIR_MODE)
        .and_then(|dir| dir.make_dir(name.parent().unwrap_or(Path::new("")), LOG_DIR_MODE));
    made.map(drop).map_err(|error| CriError::plain(error.to_string()))
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
    images.enumerate().map(|(mount_path, _)| format!("{id}-{mount_path}")).collect()
}

/// Mounts images that are used as volumes; returns them as host mounts.
fn mount_images(
    store: &ImageStore,
    config: &v1::ContainerConfig,
    (names, labels): (&[String], &SelinuxLabels),
    dir: &Path,
) -> Result<Vec<v1::Mount>> {
    let mut all = Vec::new();
    let images = config.mounts.iter().filter(|mount| mount.image.is_some());
    for (mount, view) in images.zip(names) {
        let image = mount.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
        let mount_path = &mount.container_path;
        if !mount.host_path.is_empty() {
            return Err(CriError::plain(format!(
                "hostpath must be empty while mount image: {:?} at {mount_path:?}",
                mount.host_path
            )));
        }
        if !mount.readonly {
            return Err(CriError::plain(format!(
                "readonly must be true while mount image: {image:?} at {mount_path:?}"
            )));
        }
        if image.is_empty() {
            return Err(CriError::plain(format!(
                "image not specified in the mount at {mount_path:?}"
            )));
        }
        let mut made = store
            .create_read_only_view(view, &image)
            .doing(format!("failed to mount image volume {image:?}"))?;
        let place = dir.join(view.rsplit('-').next().unwrap_or_default());
        durable::make_dir(&place)?;
        made.overlay.label.clone_from(&labels.file);
        image_store::mount_overlay(&made.overlay, &place)?;
        let source = resolve_beneath(&place, &mount.image_sub_path).doing(format!(
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
fn resolve_beneath(root: &Path, name: &str) -> Result<PathBuf> {
    if name.is_empty() {
        return Ok(root.to_owned());
    }
    if name.split('/').any(|part| part == "..") {
        return Err(CriError::plain("it has a part that leads upwards"));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let dir = open(root, flags, Mode::empty())
        .and_then(|root| openat2(&root, name, flags, Mode::empty(), resolve))
        .doing("opening it")?;
    // The image is mounted read-only, so the result cannot change.
    let link = format!("/proc/self/fd/{}", dir.as_raw_fd());
    let found = std::fs::read_link(&link).doing("finding its path")?;
    if !found.starts_with(root) {
        return Err(CriError::plain("it lies outside the image"));
    }
    Ok(found)
}

/// Creates the bundle in which hooks find the container's configuration and root.
fn make_bundle(spec: &mut ContainerSpec, dir: &Path) -> Result<()> {
    if spec.hooks.is_empty() {
        return Ok(());
    }
    let bundle = dir.join("bundle");
    let root = bundle.join(ROOT_IN_BUNDLE);
    durable::make_dir(&root)?;
    let text = oci_bundle::for_hooks(spec, &root.display().to_string())
        .map_err(|error| CriError::plain(error.to_string()))?;
    let file = bundle.join("config.json");
    std::fs::write(&file, text).doing(format!("writing {}", file.display()))?;
    spec.bundle = bundle.display().to_string();
    Ok(())
}

/// Mounts the container's root for an OCI runtime.
fn mount_root(overlay: &image_store::OverlayOptions, dir: &Path) -> Result<PathBuf> {
    let place = dir.join("root");
    durable::make_dir(&place)?;
    image_store::mount_overlay(overlay, &place)?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirs_of_an_image_are_found_beneath_it_or_not_at_all() {
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
            let outcome = resolve_beneath(&root, name);
            let expected = found.map(|found| root.join(found));
            assert_eq!(
                outcome.as_ref().ok().map(|path| path.components().collect::<PathBuf>()),
                expected.map(|path| path.components().collect::<PathBuf>()),
                "{name:?}: {outcome:?}"
            );
        }
    }
}
