'use strict';
// KFS, as it is on npm, behind the laboratory's protocol for stores of files: a line of JSON asks, a
// line of JSON answers (crates/lab/src/files). The bytes of files are those of
// crates/lab/src/files/content.rs.
//
// What is timed is KFS's own streams, fed from memory chunk by chunk with their back-pressure, until
// the last chunk is in its LevelDB, which KFS's own benchmark doesn't wait for; and of a read the
// comparison with what was written.

// KFS calls `Buffer()`, of which Node.js warns on standard error.
process.noDeprecation = true;

const kfs = require('kfs');
const kfsVersion = require('kfs/package.json').version;
const leveldownVersion = require('leveldown/package.json').version;

const CHUNK_BYTES = kfs.constants.C;

// The bytes of one file.
class Content {
  constructor(seed, bytes) {
    this.bytes = bytes;
    this.first = Buffer.alloc(CHUNK_BYTES);
    let word = Math.max(seed, 1);
    for (let at = 0; at < CHUNK_BYTES; at += 4) {
      word ^= word << 13;
      word ^= word >>> 17;
      word ^= word << 5;
      this.first.writeUInt32LE(word >>> 0, at);
    }
    this.first.writeUInt32LE(seed >>> 0, 4);
  }

  get chunks() {
    return Math.ceil(this.bytes / CHUNK_BYTES);
  }

  // The bytes of a chunk, in place: they are good until the next one.
  chunk(at) {
    this.first.writeUInt32LE(at, 0);
    return this.first.subarray(0, Math.min(CHUNK_BYTES, this.bytes - at * CHUNK_BYTES));
  }

  sum() {
    let sum = 0;
    for (let at = 4; at < CHUNK_BYTES; at += 4) {
      sum = (sum + this.first.readUInt32LE(at)) >>> 0;
    }
    return sum;
  }
}

class WrongData extends Error {}

let table = null;
let directory = null;

function open({ directory: path, reference_id, durability }) {
  if (durability !== 'os') {
    throw new Error('KFS has no way to sync what it writes');
  }
  directory = `${path}.kfs`;
  table = kfs(directory, { referenceId: reference_id });
  return {
    version: `kfs ${kfsVersion}, leveldown ${leveldownVersion}, Node.js ${process.versions.node}`,
    durability: 'nothing is synced: KFS has no way to',
    buckets: String(kfs.constants.B),
    chunk_bytes: String(CHUNK_BYTES),
    verified: 'nothing: KFS asks LevelDB for no checksum',
    survives: 'the process being killed',
  };
}

function write(name, content) {
  return new Promise((resolve, reject) => {
    table.createWriteStream(name, (error, stream) => {
      if (error) {
        return reject(error);
      }
      // Behind the stream that KFS hands out is the one that puts chunks.
      stream._readableState.pipes.on('finish', resolve).on('error', reject);
      stream.on('error', reject);
      let at = 0;
      const feed = () => {
        while (at < content.chunks) {
          const isWanted = stream.write(Buffer.from(content.chunk(at)));
          at += 1;
          if (!isWanted) {
            return stream.once('drain', feed);
          }
        }
        stream.end();
      };
      feed();
    });
  });
}

// Every byte is compared; chunks come as they were put.
function read(name, content) {
  return new Promise((resolve, reject) => {
    table.createReadStream(name, (error, stream) => {
      if (error) {
        return reject(error);
      }
      let at = 0;
      let wrong = null;
      stream.on('data', (bytes) => {
        if (wrong === null && (at >= content.chunks || !content.chunk(at).equals(bytes))) {
          wrong = at;
        }
        at += 1;
      });
      stream.on('error', reject);
      stream.on('end', () => {
        if (wrong !== null || at !== content.chunks) {
          const what = wrong === null ? `${at} of ${content.chunks} chunks` : `chunk ${wrong}`;
          return reject(new WrongData(`${name}: other bytes than were written, ${what}`));
        }
        resolve();
      });
    });
  });
}

function unlink(name) {
  return new Promise((resolve, reject) => {
    table.unlink(name, (error) => (error ? reject(error) : resolve()));
  });
}

function exists(name) {
  return new Promise((resolve, reject) => {
    table.exists(name, (error, found) => (error ? reject(error) : resolve(found)));
  });
}

// How long something took, in nanoseconds.
async function timed(work) {
  const start = process.hrtime.bigint();
  await work();
  return Number(process.hrtime.bigint() - start);
}

async function answer(ask) {
  switch (ask.ask) {
    case 'open':
      return { tell: 'opened', settings: open(ask.opening) };
    case 'write': {
      const content = new Content(ask.seed, ask.bytes);
      const ns = await timed(() => write(ask.name, content));
      return { tell: 'done', ns, sum: content.sum() };
    }
    case 'read': {
      const content = new Content(ask.seed, ask.bytes);
      const ns = await timed(() => read(ask.name, content));
      return { tell: 'done', ns, sum: content.sum() };
    }
    case 'unlink': {
      const ns = await timed(() => unlink(ask.name));
      if (await exists(ask.name)) {
        throw new WrongData(`${ask.name}: it is there after its unlinking`);
      }
      return { tell: 'done', ns };
    }
    case 'figures': {
      const all = Object.values(table._sBuckets);
      const opened = all.filter((bucket) => bucket.readyState === kfs.Sbucket.OPENED);
      return { tell: 'figures', figures: { buckets: all.length, open_buckets: opened.length } };
    }
    case 'close':
      for (const bucket of Object.values(table ? table._sBuckets : {})) {
        await new Promise((resolve) => bucket.close(resolve));
      }
      return { tell: 'closed' };
    default:
      throw new Error(`not a question: ${JSON.stringify(ask)}`);
  }
}

function say(tell) {
  return new Promise((resolve) => process.stdout.write(`${JSON.stringify(tell)}\n`, resolve));
}

async function serve() {
  const lines = require('readline').createInterface({ input: process.stdin });
  for await (const line of lines) {
    let tell;
    try {
      tell = await answer(JSON.parse(line));
    } catch (error) {
      tell = { tell: error instanceof WrongData ? 'wrong' : 'failed', what: String(error.message) };
    }
    await say(tell);
  }
  // KFS's timers would keep the process for a minute and more.
  process.exit(0);
}

serve();
