// node tier.js NAME PORT [NEXT]: a link of a chain of servers, an event loop (see tier.c)
const net = require('net');
const [name, port, next] = process.argv.slice(2);
process.title = name;
const work = (steps) => { let total = 0; for (let i = 0; i < steps; i++) total += i & 7; return total; };
const ask = (onward, line) => new Promise((done) => { onward.once('data', done); onward.write(line); });
net.createServer({ noDelay: true }, (client) => {
  const onward = next && net.connect({ port: Number(next), host: '127.0.0.1', noDelay: true });
  client.on('error', () => client.destroy()).on('close', () => onward && onward.destroy());
  client.on('data', async (data) => {
    const [whom, times] = String(data).trim().split(' '), mine = whom === name;
    work(5000);
    for (let i = 0; onward && i < (mine ? Number(times) : 1); i++) {
      work(mine ? 100000 : 0);
      await ask(onward, mine ? '- 1\n' : data);
    }
    client.write('ok\n');
  });
}).listen(Number(port), '127.0.0.1');
