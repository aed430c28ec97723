//! Defaults of volume sources, as the API server sets them.

use pod_model::pod::volume::network::{AzureDisk, Iscsi, Rbd, ScaleIo};
use pod_model::pod::volume::{
    DownwardApiFile, EmptyDir, EphemeralVolume, HostPathType, PersistentVolumeMode, ProjectedVolume,
};
use pod_model::pod::{Volume, VolumeSource};

use super::rounding::round_up_to_milli;
use super::{default_field_selector, pull_policy_for, set_text};

/// The default mode of files from Secrets, ConfigMaps, the downward API and projected volumes.
const FILE_MODE: i32 = 0o644;
/// The default lifetime of a projected service account token.
const TOKEN_EXPIRATION_SECONDS: i64 = 3600;

pub(super) fn default_volume(volume: &mut Volume) {
    let source =
        volume.source.get_or_insert_with(|| VolumeSource::EmptyDir(Box::<EmptyDir>::default()));
    match source {
        VolumeSource::HostPath(path) => {
            path.kind.get_or_insert_with(HostPathType::default);
        }
        VolumeSource::Secret(secret) => {
            secret.default_mode.get_or_insert(FILE_MODE);
        }
        VolumeSource::ConfigMap(map) => {
            map.default_mode.get_or_insert(FILE_MODE);
        }
        VolumeSource::DownwardApi(volume) => {
            volume.default_mode.get_or_insert(FILE_MODE);
            default_files(&mut volume.items);
        }
        VolumeSource::Projected(projected) => default_projected(projected),
        VolumeSource::Image(image) if image.pull_policy.is_empty() => {
            image.pull_policy = pull_policy_for(&image.reference);
        }
        VolumeSource::Ephemeral(ephemeral) => default_ephemeral(ephemeral),
        VolumeSource::Iscsi(iscsi) => default_iscsi(iscsi),
        VolumeSource::Rbd(rbd) => default_rbd(rbd),
        VolumeSource::AzureDisk(disk) => default_azure_disk(disk),
        VolumeSource::ScaleIo(scale_io) => default_scale_io(scale_io),
        _ => {}
    }
}

fn default_files(files: &mut [DownwardApiFile]) {
    for selector in files.iter_mut().filter_map(|file| file.field_ref.as_deref_mut()) {
        default_field_selector(selector);
    }
}

fn default_projected(projected: &mut ProjectedVolume) {
    projected.default_mode.get_or_insert(FILE_MODE);
    for source in &mut projected.sources {
        if let Some(downward) = &mut source.downward_api {
            default_files(&mut downward.items);
        }
        if let Some(token) = &mut source.service_account_token {
            token.expiration_seconds.get_or_insert(TOKEN_EXPIRATION_SECONDS);
        }
    }
}

fn default_ephemeral(ephemeral: &mut EphemeralVolume) {
    let Some(template) = &mut ephemeral.volume_claim_template else { return };
    template.spec.volume_mode.get_or_insert(PersistentVolumeMode::Filesystem);
    round_up_to_milli(&mut template.spec.resources.limits);
    round_up_to_milli(&mut template.spec.resources.requests);
}

fn default_iscsi(iscsi: &mut Iscsi) {
    set_text(&mut iscsi.iscsi_interface, "default");
}

fn default_rbd(rbd: &mut Rbd) {
    set_text(&mut rbd.pool, "rbd");
    set_text(&mut rbd.user, "admin");
    set_text(&mut rbd.keyring, "/etc/ceph/keyring");
}

fn default_azure_disk(disk: &mut AzureDisk) {
    disk.caching_mode.get_or_insert_with(|| Box::from("ReadWrite"));
    disk.fs_type.get_or_insert_with(|| Box::from("ext4"));
    disk.read_only.get_or_insert(false);
    disk.kind.get_or_insert_with(|| Box::from("Shared"));
}

fn default_scale_io(scale_io: &mut ScaleIo) {
    set_text(&mut scale_io.storage_mode, "ThinProvisioned");
    set_text(&mut scale_io.fs_type, "xfs");
}
