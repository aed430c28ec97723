//! From a descriptor and a content source to an image with snapshots and names.
//!
//! The only way into the store: archives, directories and registries are each a [`ContentSource`].
//! The order makes a kill at any point safe: content first, then snapshots, then the record that
//! makes the image exist. Work completed before a kill is found and not repeated.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Read};
use std::sync::Mutex;

use crate::content::IngestStart;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::index::{LayerRecord, StoredImage, chain_ids};
use crate::platform::Platform;
use crate::progress::{ProgressListener, ProgressStep, StepThrottle};
use crate::reference::ImageReference;
use crate::session::StoreSession;
use crate::snapshot::UnpackingSnapshot;
use crate::snapshot::fit_to_lower_layers::fit_to_lower_layers;
use crate::spec::{Descriptor, ImageConfig, ImageDocument, ImageManifest, Index, PlatformField};
use crate::store::ImageStore;
use crate::tree::Tree;
use crate::unpack::{LayerUnpack, UnpackRights};

/// Where content comes from. Called from several threads at once.
pub trait ContentSource: Sync {
    /// The bytes of this content from `offset` on. The caller verifies them.
    fn fetch(&self, descriptor: &Descriptor, offset: u64) -> Result<Box<dyn Read + '_>>;
}

/// A source without content: all of it must be in the store already.
pub(crate) struct NoSource;

impl ContentSource for NoSource {
    fn fetch(&self, descriptor: &Descriptor, _offset: u64) -> Result<Box<dyn Read + '_>> {
        Err(Error::ContentMissing(descriptor.digest))
    }
}

/// The image's names, and whether it is pinned or preloaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageNaming {
    pub names: Vec<ImageReference>,
    pub pinned: bool,
    pub preloaded: bool,
    /// From an archive, not from a registry. Such an image has a name with a digest only where the
    /// archive gives one: the agent takes a digest of the repository for the trace of a pull.
    pub imported: bool,
}

pub(crate) struct ImageAssembly<'a> {
    pub(crate) store: &'a ImageStore,
    pub(crate) source: &'a dyn ContentSource,
    pub(crate) progress: &'a dyn ProgressListener,
    session: StoreSession,
    blobs: Mutex<BTreeMap<Digest, u64>>,
    /// Everything that the session protects.
    protected: Mutex<BTreeSet<Digest>>,
}

/// An image as its documents describe it, before any layer is present.
struct ImagePlan {
    digest: Digest,
    manifest: ImageManifest,
    config: ImageConfig,
}

impl<'a> ImageAssembly<'a> {
    pub(crate) fn new(
        store: &'a ImageStore,
        source: &'a dyn ContentSource,
        progress: &'a dyn ProgressListener,
    ) -> Result<Self> {
        let session = store.session()?;
        let (blobs, protected) = (Mutex::default(), Mutex::default());
        Ok(Self { store, source, progress, session, blobs, protected })
    }

    /// Ends the session; returns what it protected until now.
    pub(crate) fn finish(self) -> BTreeSet<Digest> {
        locked(&self.protected).clone()
    }

    fn protect(&self, digests: &[Digest]) -> Result<()> {
        locked(&self.protected).extend(digests);
        self.session.protect(digests)
    }

    pub(crate) fn run(&self, top: &Descriptor, naming: &ImageNaming) -> Result<StoredImage> {
        let plan = self.resolve(top, 0, &mut BTreeSet::new())?;
        let chain_ids = chain_ids(plan.config.diff_ids().iter());
        let layers = plan.manifest.layers.iter().map(|layer| layer.digest);
        self.protect(&layers.chain(chain_ids.iter().copied()).collect::<Vec<_>>())?;
        self.layers(&plan, &chain_ids)?;
        let record = self.record(top, &plan, naming)?;
        self.store.index.change(|images| {
            images.add(record.clone());
            Ok(images.images[&record.id].clone())
        })
    }

    /// Follows indexes to the manifest for this platform.
    fn resolve(
        &self,
        descriptor: &Descriptor,
        depth: usize,
        seen: &mut BTreeSet<Digest>,
    ) -> Result<ImagePlan> {
        let what = format!("document {}", descriptor.digest);
        if depth > self.store.limits.index_depth || !seen.insert(descriptor.digest) {
            return Err(Error::document(what, "lies too deep in indexes, or in a circle of them"));
        }
        match self.document(descriptor)? {
            ImageDocument::ImageManifest(_) if descriptor.is_index() => {
                Err(Error::document(what, "was announced as an index but is a manifest"))
            }
            ImageDocument::ImageManifest(manifest) => self.plan(descriptor.digest, manifest),
            ImageDocument::Index(index) => {
                let candidates = candidates(&index, &self.store.platform);
                for candidate in &candidates {
                    match self.resolve(candidate, depth + 1, seen) {
                        // A nested index without this platform: another one may have it.
                        Err(Error::NoPlatform { .. }) => {}
                        other => return other,
                    }
                }
                Err(no_platform(&what, &self.store.platform, &index))
            }
        }
    }

    fn document(&self, descriptor: &Descriptor) -> Result<ImageDocument> {
        let bytes = self.small(descriptor)?;
        ImageDocument::parse(&format!("document {}", descriptor.digest), &bytes, &self.store.limits)
    }

    fn plan(&self, digest: Digest, manifest: ImageManifest) -> Result<ImagePlan> {
        let what = format!("manifest {digest}");
        let bytes = self.small(&manifest.config)?;
        let name = format!("configuration {}", manifest.config.digest);
        let config = ImageConfig::parse(&name, &bytes, &self.store.limits)?;
        manifest.check_image(&what, &config)?;
        let offered = PlatformField {
            os: config.os.clone(),
            architecture: config.architecture.clone(),
            variant: config.variant.clone(),
        };
        let names_platform = !offered.os.is_empty() && !offered.architecture.is_empty();
        if names_platform && self.store.platform.suits(&offered).is_none() {
            return Err(Error::NoPlatform {
                what,
                wanted: self.store.platform.to_string(),
                available: shown(&offered),
            });
        }
        Ok(ImagePlan { digest, manifest, config })
    }

    fn small(&self, descriptor: &Descriptor) -> Result<Vec<u8>> {
        let limit = self.store.limits.document_bytes;
        let what = || format!("document {}: bytes", descriptor.digest);
        crate::limits::Limits::check(what, descriptor.size, limit)?;
        self.protect(&[descriptor.digest])?;
        self.receive(descriptor)?;
        self.store.content.read_document(&descriptor.digest, limit)
    }

    /// Fetches content into the store unless it is present.
    fn receive(&self, descriptor: &Descriptor) -> Result<()> {
        let digest = descriptor.digest;
        match self.store.content.begin(&digest, descriptor.size)? {
            IngestStart::Present => {
                self.progress.step(ProgressStep::Present { digest, bytes: descriptor.size });
            }
            IngestStart::Ingest(mut ingest) => {
                let total = Some(descriptor.size);
                let mut throttle = StepThrottle::default();
                if ingest.offset() < descriptor.size || descriptor.size == 0 {
                    let bytes = self.source.fetch(descriptor, ingest.offset())?;
                    let report = |done| {
                        if throttle.is_due(done) {
                            let digest = Some(digest);
                            self.progress.step(ProgressStep::Received { digest, done, total });
                        }
                    };
                    let failed =
                        |error: &io::Error| Error::Source { digest, reason: error.to_string() };
                    ingest.receive_all(bytes, report, failed)?;
                }
                let done = ingest.offset();
                ingest.commit()?;
                self.progress.step(ProgressStep::Received { digest: Some(digest), done, total });
            }
        }
        let mut blobs = self.blobs.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        blobs.insert(digest, descriptor.size);
        Ok(())
    }

    /// Fetches and unpacks layers on several threads, then fits and places them in order.
    fn layers(&self, plan: &ImagePlan, chain_ids: &[Digest]) -> Result<()> {
        let count = plan.manifest.layers.len();
        let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..count).collect());
        let made: Mutex<Vec<Option<UnpackingSnapshot>>> =
            Mutex::new((0..count).map(|_| None).collect());
        let done = Mutex::new(0_usize);
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        let work = || {
            loop {
                let next = locked(&waiting).pop_front();
                let Some(at) = next.filter(|_| locked(&failed).is_none()) else { return };
                match self.layer(plan, chain_ids, at) {
                    Ok(unpacking) => {
                        locked(&made)[at] = unpacking;
                        let mut done = locked(&done);
                        *done += 1;
                        self.progress.step(ProgressStep::Layers { done: *done, of: count });
                    }
                    Err(error) => {
                        locked(&failed).get_or_insert(error);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            // The current thread works too.
            for _ in 1..self.store.limits.parallel_layers.min(count) {
                scope.spawn(work);
            }
            work();
        });
        if let Some(error) = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
        {
            return Err(error);
        }
        let made = made.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.publish(plan, chain_ids, made)
    }

    /// One layer: fetches its content, and unpacks it unless its snapshot exists.
    fn layer(
        &self,
        plan: &ImagePlan,
        chain_ids: &[Digest],
        at: usize,
    ) -> Result<Option<UnpackingSnapshot>> {
        let descriptor = &plan.manifest.layers[at];
        self.receive(descriptor)?;
        if self.store.snapshots.has(&chain_ids[at]) {
            return Ok(None);
        }
        let mut unpacking = self.store.snapshots.begin()?;
        let layer = LayerUnpack {
            blob: self.store.content.open_blob(&descriptor.digest)?,
            diff_id: plan.config.diff_ids()[at],
            lowest: at == 0,
            limits: &self.store.limits,
            progress: self.progress,
        };
        let mut tree = Tree::open(&unpacking.files(), &self.store.limits)?;
        unpacking.unpacked = layer.unpack(&mut tree, UnpackRights::ours())?;
        Ok(Some(unpacking))
    }

    fn publish(
        &self,
        plan: &ImagePlan,
        chain_ids: &[Digest],
        made: Vec<Option<UnpackingSnapshot>>,
    ) -> Result<()> {
        let limits = &self.store.limits;
        let mut layer_dirs = Vec::new();
        let mut finished = Vec::new();
        for (at, unpacking) in made.into_iter().enumerate() {
            let Some(unpacking) = unpacking else {
                layer_dirs.push(self.store.snapshots.files(&chain_ids[at]));
                continue;
            };
            let lowers: Result<Vec<Tree>> =
                layer_dirs.iter().rev().map(|publish| Tree::open(publish, limits)).collect();
            let mut tree = Tree::open(&unpacking.files(), limits)?;
            fit_to_lower_layers(&mut tree, &unpacking.unpacked, &lowers?, UnpackRights::ours())?;
            let parent = at.checked_sub(1).map(|below| chain_ids[below]);
            unpacking.write_record(parent, plan.config.diff_ids()[at])?;
            layer_dirs.push(unpacking.files());
            finished.push((chain_ids[at], unpacking));
        }
        if finished.is_empty() {
            return Ok(());
        }
        self.store.snapshots.sync()?;
        self.store.snapshots.publish(finished)
    }

    fn record(
        &self,
        top: &Descriptor,
        plan: &ImagePlan,
        naming: &ImageNaming,
    ) -> Result<StoredImage> {
        let mut names = BTreeMap::new();
        let mut digests = BTreeSet::new();
        for name in &naming.names {
            if let Some(digest) = name.digest()
                && *digest != top.digest
            {
                return Err(Error::DigestMismatch { expected: *digest, found: top.digest });
            }
            names.extend(name.tagged().map(|tagged| (tagged, top.digest)));
            if !naming.imported || name.digest().is_some() {
                digests.insert(name.at_digest(&top.digest));
            }
        }
        let layers = plan.manifest.layers.iter().zip(plan.config.diff_ids());
        let layers = layers.map(|(layer, diff_id)| LayerRecord {
            digest: layer.digest,
            size: layer.size,
            diff_id: *diff_id,
        });
        Ok(StoredImage {
            id: plan.manifest.config.digest,
            manifest: plan.digest,
            names,
            digests,
            layers: layers.collect(),
            blobs: locked(&self.blobs).clone(),
            pinned: naming.pinned,
            preloaded: naming.preloaded,
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The manifests of an index that fit this platform, the best first.
pub(crate) fn candidates(index: &Index, platform: &Platform) -> Vec<Descriptor> {
    let mut suited: Vec<(u32, &Descriptor)> = index
        .manifests
        .iter()
        .filter_map(|descriptor| match &descriptor.platform {
            Some(offered) => Some((platform.suits(offered)?, descriptor)),
            None => Some((1, descriptor)),
        })
        .collect();
    // A stable sort: among equals the order of the index decides.
    suited.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    suited.into_iter().map(|(_, descriptor)| descriptor.clone()).collect()
}

fn no_platform(what: &str, platform: &Platform, index: &Index) -> Error {
    let offered: Vec<_> = index.manifests.iter().filter_map(|d| d.platform.as_ref()).collect();
    let mut available: Vec<_> = offered.into_iter().take(20).map(shown).collect();
    if available.is_empty() {
        available.push("none that fits".to_owned());
    }
    Error::NoPlatform {
        what: what.to_owned(),
        wanted: platform.to_string(),
        available: available.join(", "),
    }
}

fn shown(offered: &PlatformField) -> String {
    let PlatformField { os, architecture, variant } = offered;
    if variant.is_empty() {
        format!("{os}/{architecture}")
    } else {
        format!("{os}/{architecture}/{variant}")
    }
}
