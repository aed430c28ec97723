//! Images in the runtime's store.

use anyhow::{Result, ensure};
use cri_wire::v1;

use super::cases;
use crate::support::{BUSYBOX, CONFIGURED, Cri, code};

cases![
    image_list_has_what_was_imported,
    image_status_by_name,
    image_status_by_id,
    image_status_by_the_start_of_an_id,
    image_status_of_unknown_is_empty,
    image_status_of_nonsense_is_empty,
    image_status_shows_the_user,
    image_status_verbose_has_its_configuration,
    image_remove_of_unknown_is_fine,
    image_remove_keeps_what_containers_use,
    image_filesystem_is_reported,
    image_pull_of_nonsense_is_refused,
    image_volume_shows_the_image_and_cannot_be_written,
    image_volume_of_a_dir_of_the_image,
    image_volume_that_cannot_be_is_refused,
];

fn spec(image: &str) -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec { image: image.to_owned(), ..Default::default() })
}

async fn status(cri: &Cri, image: &str) -> Result<Option<v1::Image>, tonic::Status> {
    let request = v1::ImageStatusRequest { image: spec(image), verbose: false };
    Ok(cri.im().image_status(request).await?.into_inner().image)
}

async fn image_list_has_what_was_imported(cri: &Cri) -> Result<()> {
    let list = cri.im().list_images(v1::ListImagesRequest { filter: None }).await?.into_inner();
    let found = list.images.iter().find(|image| image.repo_tags.iter().any(|tag| tag == BUSYBOX));
    ensure!(found.is_some_and(|image| image.id.starts_with("sha256:") && image.size > 0));
    Ok(())
}

async fn image_status_by_name(cri: &Cri) -> Result<()> {
    ensure!(status(cri, BUSYBOX).await?.is_some_and(|image| image.repo_tags == [BUSYBOX]));
    Ok(())
}

async fn image_status_by_id(cri: &Cri) -> Result<()> {
    let id = status(cri, BUSYBOX).await?.unwrap_or_default().id;
    ensure!(status(cri, &id).await?.is_some_and(|image| image.id == id));
    Ok(())
}

async fn image_status_by_the_start_of_an_id(cri: &Cri) -> Result<()> {
    let id = status(cri, BUSYBOX).await?.unwrap_or_default().id;
    let start = &id.trim_start_matches("sha256:")[..13];
    ensure!(status(cri, start).await?.is_some_and(|image| image.id == id));
    Ok(())
}

async fn image_status_of_unknown_is_empty(cri: &Cri) -> Result<()> {
    ensure!(status(cri, "registry.test/unknown:1").await?.is_none());
    Ok(())
}

async fn image_status_of_nonsense_is_empty(cri: &Cri) -> Result<()> {
    ensure!(status(cri, "Not A Name").await?.is_none());
    Ok(())
}

async fn image_status_shows_the_user(cri: &Cri) -> Result<()> {
    let image = status(cri, CONFIGURED).await?.unwrap_or_default();
    ensure!(image.username == "nobody" && image.uid.is_none(), "{image:?}");
    Ok(())
}

async fn image_status_verbose_has_its_configuration(cri: &Cri) -> Result<()> {
    let request = v1::ImageStatusRequest { image: spec(CONFIGURED), verbose: true };
    let info = cri.im().image_status(request).await?.into_inner().info;
    let info: serde_json::Value = serde_json::from_str(info.get("info").map_or("", |text| text))?;
    ensure!(info["imageSpec"]["config"]["User"] == "nobody", "{info}");
    ensure!(info["chainID"].as_str().is_some_and(|chain| chain.starts_with("sha256:")));
    Ok(())
}

async fn image_remove_of_unknown_is_fine(cri: &Cri) -> Result<()> {
    let request = v1::RemoveImageRequest { image: spec("registry.test/unknown:1") };
    cri.im().remove_image(request).await?;
    Ok(())
}

async fn image_remove_keeps_what_containers_use(cri: &Cri) -> Result<()> {
    let mut config = cri.container("sleep 100");
    config.image = spec(crate::support::SPARE);
    let running = cri.running_as(cri.pod(), config).await?;
    cri.im().remove_image(v1::RemoveImageRequest { image: spec(crate::support::SPARE) }).await?;
    ensure!(status(cri, crate::support::SPARE).await?.is_none());
    let answer = cri.exec(&running.id, &["ls", "/bin/busybox"], 10).await?;
    ensure!(answer.exit_code == 0, "{answer:?}");
    Ok(())
}

async fn image_filesystem_is_reported(cri: &Cri) -> Result<()> {
    let info = cri.im().image_fs_info(v1::ImageFsInfoRequest {}).await?.into_inner();
    let first = info.image_filesystems.first().cloned().unwrap_or_default();
    let mountpoint = first.fs_id.unwrap_or_default().mountpoint;
    ensure!(std::path::Path::new(&mountpoint).is_dir(), "{mountpoint}");
    ensure!(first.used_bytes.is_some() && first.inodes_used.is_some() && first.timestamp > 0);
    Ok(())
}

async fn image_pull_of_nonsense_is_refused(cri: &Cri) -> Result<()> {
    let request = v1::PullImageRequest { image: spec("Not A Name"), ..Default::default() };
    ensure!(code(cri.im().pull_image(request).await)? == tonic::Code::Unknown);
    Ok(())
}

/// A container with an image as a volume at `/volume`.
fn with_volume(cri: &Cri, script: &str, image: &str, dir: &str) -> v1::ContainerConfig {
    let mut container = cri.container(script);
    container.mounts.push(v1::Mount {
        container_path: "/volume".to_owned(),
        readonly: true,
        image: spec(image),
        image_sub_path: dir.to_owned(),
        ..Default::default()
    });
    container
}

async fn image_volume_shows_the_image_and_cannot_be_written(cri: &Cri) -> Result<()> {
    let script = "/volume/bin/busybox echo runs; grep -c nobody /volume/etc/passwd; \
                  touch /volume/x 2>/dev/null && echo written; exit 0";
    let container = with_volume(cri, script, CONFIGURED, "");
    let (code, output) = cri.ran(cri.pod(), container).await?;
    ensure!(code == 0 && output == "runs\n1\n", "{output:?}");
    Ok(())
}

async fn image_volume_of_a_dir_of_the_image(cri: &Cri) -> Result<()> {
    let script = "grep -c nobody /volume/passwd; test -e /volume/bin || echo none";
    let container = with_volume(cri, script, BUSYBOX, "etc");
    let (code, output) = cri.ran(cri.pod(), container).await?;
    ensure!(code == 0 && output == "1\nnone\n", "{output:?}");
    Ok(())
}

async fn image_volume_that_cannot_be_is_refused(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let of = |image: &str, dir: &str| with_volume(cri, "true", image, dir);
    let mut writable = of(BUSYBOX, "");
    writable.mounts[0].readonly = false;
    let mut two = of(BUSYBOX, "");
    two.mounts[0].host_path = "/tmp".to_owned();
    for (what, container) in [
        ("an unknown image", of("registry.test/unknown:1", "")),
        ("no image", of("", "")),
        ("a missing folder", of(BUSYBOX, "no/such/folder")),
        ("a file", of(BUSYBOX, "etc/passwd")),
        ("a way out", of(BUSYBOX, "../../etc")),
        ("a writable one", writable),
        ("an image and a path", two),
    ] {
        ensure!(cri.create(&sandbox, &pod, &container).await.is_err(), "{what} was mounted");
    }
    Ok(())
}
