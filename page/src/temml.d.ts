declare module "temml/dist/temml.min.js" {
  const temml: { render: (text: string, into: HTMLElement, options: object) => void };
  export default temml;
}
