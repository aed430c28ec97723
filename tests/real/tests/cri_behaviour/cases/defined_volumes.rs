//! Volumes that an image defines itself.

use anyhow::{Result, ensure};
use cri_wire::v1;

use super::cases;
use crate::support::{BUSYBOX, Cri, FILE_VOLUME, FILLED, security};

cases![
    defined_volume_has_the_files_of_the_image,
    defined_volume_that_is_not_in_the_image_is_empty,
    defined_volume_behind_a_link_has_the_files_there,
    defined_volume_ends_with_its_container,
    defined_volume_gives_way_to_a_mount,
    defined_volume_can_be_written_on_a_read_only_root,
    defined_volume_that_is_a_file_is_refused,
];

fn of_image(cri: &Cri, image: &str, script: &str) -> v1::ContainerConfig {
    let mut container = cri.container(script);
    container.image = Some(v1::ImageSpec { image: image.to_owned(), ..Default::default() });
    container
}

async fn output_of(cri: &Cri, script: &str) -> Result<String> {
    let (code, output) = cri.ran(cri.pod(), of_image(cri, FILLED, script)).await?;
    ensure!(code == 0, "ended with {code}: {output}");
    Ok(output)
}

async fn defined_volume_has_the_files_of_the_image(cri: &Cri) -> Result<()> {
    let script = "cd /filled; stat -c '%n %a %u:%g' . file deep deep/er/file; \
        cat file deep/er/file; readlink link; grep -c ' /filled ' /proc/mounts";
    let expected = ". 2750 1000:1001\nfile 640 1002:1003\ndeep 755 0:0\ndeep/er/file 400 0:0\n\
        of the image\ndeep\nfile\n1\n";
    let output = output_of(cri, script).await?;
    ensure!(output == expected, "{output}");
    Ok(())
}

async fn defined_volume_that_is_not_in_the_image_is_empty(cri: &Cri) -> Result<()> {
    let script = "for v in /bare/volume /relative; do stat -c '%n %a %u:%g' $v; ls -A $v; \
        grep -c \" $v \" /proc/mounts; touch $v/mine; done";
    let output = output_of(cri, script).await?;
    let expected = "/bare/volume 755 0:0\n1\n/relative 755 0:0\n1\n";
    ensure!(output == expected, "{output}");
    Ok(())
}

async fn defined_volume_behind_a_link_has_the_files_there(cri: &Cri) -> Result<()> {
    let script = "cat /by-link/file /behind/file; readlink /by-link; \
        grep -c ' /behind ' /proc/mounts; echo mine > /by-link/file; cat /behind/file";
    let output = output_of(cri, script).await?;
    let expected = "behind a link\nbehind a link\n/behind\n1\nmine\n";
    ensure!(output == expected, "{output}");
    Ok(())
}

/// The next container of the same name gets a new volume with the image's content.
async fn defined_volume_ends_with_its_container(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let script = "cat /filled/file; ls -A /filled /bare/volume | grep mine; \
        echo other > /filled/file; touch /filled/mine /bare/volume/mine; sleep 1000";
    let mut container = of_image(cri, FILLED, script);
    for attempt in 0..2 {
        container.metadata.get_or_insert_default().attempt = attempt;
        container.log_path = format!("attempt-{attempt}.log");
        let id = cri.create(&sandbox, &pod, &container).await?;
        cri.start(&id).await?;
        let look = ["sh", "-c", "until test -e /bare/volume/mine; do sleep 0.1; done"];
        let answer = cri.exec(&id, &look, 20).await?;
        ensure!(answer.exit_code == 0, "{answer:?}");
        let log = std::fs::read_to_string(cri.dir.join(&container.log_path))?;
        ensure!(log.lines().count() == 1 && log.contains("of the image"), "{attempt}: {log}");
        // It ends, and what it wrote is still its own.
        cri.stop(&id, 0).await?;
    }
    Ok(())
}

async fn defined_volume_gives_way_to_a_mount(cri: &Cri) -> Result<()> {
    let dir = cri.dir.join("given");
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join("given"), "")?;
    let mut container = of_image(cri, FILLED, "ls -A /filled; grep -c ' /filled ' /proc/mounts");
    container.mounts.push(v1::Mount {
        container_path: "/filled".to_owned(),
        host_path: dir.display().to_string(),
        ..Default::default()
    });
    let (code, output) = cri.ran(cri.pod(), container).await?;
    ensure!(code == 0 && output == "given\n1\n", "{output}");
    Ok(())
}

async fn defined_volume_can_be_written_on_a_read_only_root(cri: &Cri) -> Result<()> {
    let script = "touch /mine 2>/dev/null && echo root; echo x > /filled/file && cat /filled/file";
    let mut container = of_image(cri, FILLED, script);
    security(&mut container).readonly_rootfs = true;
    let (code, output) = cri.ran(cri.pod(), container).await?;
    ensure!(code == 0 && output == "x\n", "{output}");
    Ok(())
}

async fn defined_volume_that_is_a_file_is_refused(cri: &Cri) -> Result<()> {
    let pod = cri.pod();
    let sandbox = cri.run(&pod).await?;
    let created = cri.create(&sandbox, &pod, &of_image(cri, FILE_VOLUME, "true")).await;
    ensure!(created.is_err(), "a file was taken as a volume");
    // The control: it is the volume that is refused.
    cri.create(&sandbox, &pod, &of_image(cri, BUSYBOX, "true")).await?;
    Ok(())
}
