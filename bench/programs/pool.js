// Small calls to the file system, 64 under way in the thread pool: pool.js SECONDS
const { stat } = require("fs");
const seconds = Number(process.argv[2]);
const end = Date.now() + seconds * 1000;
let done = 0;
let left = 64;
function next(error) {
    if (error) throw error;
    done++;
    if (Date.now() < end) stat(__filename, next);
    else if (--left === 0) console.log(`${Math.round(done / seconds)} ops/s`);
}
for (let i = 0; i < 64; i++) stat(__filename, next);
